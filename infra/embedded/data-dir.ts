import { chmodSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { AppError } from '../../schemas/errors.ts';
import { errorCode } from '../error-code.ts';
import { sleep } from '../lifecycle.ts';
import { markOf, readMarks, runs } from './processes.ts';

/** A process that was just killed stays in the process table for a moment. */
const LOCK_TIMEOUT_MS = 1500;

/** Creates a folder that only its owner can enter: servers may write world-readable files into it. */
export function makeClosedFolder(folder: string): void {
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o700);
}

/**
 * Locks a data folder for this process, replacing the lock of a killed process. Returns a function that unlocks it.
 *
 * @throws AppError naming the process that holds the lock
 */
export async function lockDataDir(dataDir: string): Promise<() => void> {
  mkdirSync(dataDir, { recursive: true });
  const file = join(dataDir, 'lock');
  const deadline = Date.now() + LOCK_TIMEOUT_MS;
  const mine = `${process.pid} ${markOf(process.pid)?.began ?? '-'}\n`;
  // Written elsewhere and linked, so that no process reads an incomplete lock.
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, mine);
  let recovered = false;
  for (;;) {
    try {
      linkSync(draft, file);
      // Two processes that found the same stale lock may remove each other's: the one whose content remains holds it.
      if (recovered) await sleep(100);
      if (contentOf(file) !== mine) continue;
      rmSync(draft, { force: true });
      return () => {
        if (contentOf(file) === mine) rmSync(file, { force: true });
      };
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error;
    }
    const holder = lockHolder(dataDir);
    if (holder === null) {
      rmSync(file, { force: true });
      recovered = true;
    } else if (Date.now() < deadline) {
      await sleep(50);
    } else {
      rmSync(draft, { force: true });
      throw dataDirInUse(dataDir, holder);
    }
  }
}

/** The id of the running process that has locked a data folder; null: none. */
export function lockHolder(dataDir: string): number | null {
  return readMarks(join(dataDir, 'lock')).find((mark) => runs(mark))?.pid ?? null;
}

export function dataDirInUse(dataDir: string, pid: number): AppError {
  return new AppError(
    'CONFLICT',
    `${dataDir} is in use by process ${pid}: stop that process, or set DATA_DIR to another folder`,
  );
}

function contentOf(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
