import { chmodSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { AppError } from '../../schemas/errors.ts';
import { pause } from '../lifecycle.ts';
import { markOf, readMarks, runs } from './processes.ts';

/** A holder that was just killed is still in the process table for a moment. */
const patienceMs = 1500;

/** Makes a folder that its owner alone may enter: what servers write into it is readable to all by its own mode. */
export function makeClosedFolder(folder: string): void {
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o700);
}

/**
 * Takes a data folder for this process. A second start on it is refused, naming who holds it; what a killed process
 * left is taken over. Returns the release.
 */
export async function lockDataDir(dataDir: string): Promise<() => void> {
  mkdirSync(dataDir, { recursive: true });
  const file = join(dataDir, 'lock');
  const deadline = Date.now() + patienceMs;
  const mine = `${process.pid} ${markOf(process.pid)?.began ?? '-'}\n`;
  // Linked into place, so that nobody ever reads a lock that is still being written.
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, mine);
  let recovered = false;
  for (;;) {
    try {
      linkSync(draft, file);
      // Two that found the same lock left behind could each remove the other's: the one whose mark stays has it.
      if (recovered) await pause(100);
      if (contentOf(file) !== mine) continue;
      rmSync(draft, { force: true });
      return () => {
        if (contentOf(file) === mine) rmSync(file, { force: true });
      };
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    }
    const holder = readMarks(file).find((mark) => runs(mark));
    if (holder === undefined) {
      rmSync(file, { force: true });
      recovered = true;
    } else if (Date.now() < deadline) {
      await pause(50);
    } else {
      rmSync(draft, { force: true });
      throw new AppError(
        'CONFLICT',
        `${dataDir} is in use by process ${holder.pid}: stop that one first, or set DATA_DIR to another folder`,
      );
    }
  }
}

function contentOf(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
