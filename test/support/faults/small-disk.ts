import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, rmdirSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { errorCode } from '../../../infra/error-code.ts';

/** A separate, small disk for a server, which a test can fill. */
export interface SmallDisk {
  readonly path: string;
  /** Fills the remaining space. */
  fill(): void;
  /** Frees that space. */
  free(): void;
  unmount(): void;
}

/** Mounts a tmpfs; `refused` says why it could not be mounted. */
export function mountSmallDisk(megabytes: number): SmallDisk | { readonly refused: string } {
  const path = mkdtempSync(join(tmpdir(), 'tds-disk-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=0755`, 'tmpfs', path], {
    encoding: 'utf8',
  });
  if (mounted.status !== 0) {
    rmdirSync(path);
    return { refused: `could not mount a tmpfs: ${mounted.stderr || String(mounted.error)}` };
  }
  const filler = join(path, 'filler');
  return {
    path,
    fill() {
      const file = openSync(filler, 'a');
      try {
        for (const bytes of [1 << 20, 1 << 12]) writeAll(file, Buffer.alloc(bytes, 1));
      } finally {
        closeSync(file);
      }
    },
    free: () => rmSync(filler, { force: true }),
    unmount() {
      // Lazy unmount: a killed server may keep a file open for a moment.
      spawnSync('umount', ['-l', path]);
      rmdirSync(path);
    },
  };
}

/** Writes until the disk is full. */
function writeAll(file: number, piece: Buffer): void {
  for (;;) {
    try {
      writeSync(file, piece);
    } catch (error) {
      if (errorCode(error) === 'ENOSPC') return;
      throw error;
    }
  }
}
