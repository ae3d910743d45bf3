import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, rmdirSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A disk of its own for a server, small enough to be filled. */
export interface SmallDisk {
  readonly path: string;
  /** Takes all room that is left. */
  fill(): void;
  /** Gives it back. */
  free(): void;
  unmount(): void;
}

/** A tmpfs; the reason where this system does not let one be mounted. */
export function mountSmallDisk(megabytes: number): SmallDisk | { readonly refused: string } {
  const path = mkdtempSync(join(tmpdir(), 'tds-disk-'));
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=0755`, 'tmpfs', path], {
    encoding: 'utf8',
  });
  if (mounted.status !== 0) {
    rmdirSync(path);
    return { refused: `no tmpfs can be mounted here: ${mounted.stderr || String(mounted.error)}` };
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
      // Lazily: a server that was killed may still hold a file for a moment.
      spawnSync('umount', ['-l', path]);
      rmdirSync(path);
    },
  };
}

/** Until there is no room for one more. */
function writeAll(file: number, piece: Buffer): void {
  for (;;) {
    try {
      writeSync(file, piece);
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOSPC') return;
      throw error;
    }
  }
}
