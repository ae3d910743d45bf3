import { mkdirSync, openSync, closeSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';

import { AppError } from '../../schemas/errors.ts';
import { markOf, readMarks, runs } from './processes.ts';

/**
 * Takes a data folder for this process. A second start on it is refused, naming who holds it; what a killed process
 * left is taken over. Returns the release.
 */
export function lockDataDir(dataDir: string): () => void {
  mkdirSync(dataDir, { recursive: true });
  const file = join(dataDir, 'lock');
  for (let attempt = 0; attempt < 5; attempt++) {
    const mine = `${process.pid} ${markOf(process.pid)?.began ?? '-'}\n`;
    try {
      const handle = openSync(file, 'wx');
      writeSync(handle, mine);
      closeSync(handle);
      return () => {
        if (contentOf(file) === mine) rmSync(file, { force: true });
      };
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    }
    const holder = readMarks(file).find((mark) => runs(mark));
    if (holder !== undefined) {
      throw new AppError(
        'CONFLICT',
        `${dataDir} is in use by process ${holder.pid}: stop that one first, or set DATA_DIR to another folder`,
      );
    }
    rmSync(file, { force: true });
  }
  throw new AppError('CONFLICT', `${dataDir} is being taken by another start`);
}

function contentOf(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
