import { randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, open, readFile, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';

import type { ObjectStore } from './store.ts';

export function createFolderStore(folder: string): ObjectStore {
  return {
    text: async (name, signal) => await ifThere(readFile(join(folder, name), { encoding: 'utf8', signal })),
    size: async (name) => (await ifThere(stat(join(folder, name))))?.size ?? null,
    read: async (name, range, signal) =>
      (await open(join(folder, name))).createReadStream({ ...range, signal }),
    async write(name, body, signal) {
      const path = join(folder, name);
      await mkdir(dirname(path), { recursive: true });
      await removeParts(path);
      // Of this writer alone: one that has lost its lock may still be writing.
      const part = `${path}.${randomUUID()}.part`;
      try {
        await pipeline(body, createWriteStream(part, { flush: true }), { signal });
        await rename(part, path);
      } catch (error) {
        await rm(part, { force: true });
        throw error;
      }
    },
  };
}

/** Removes what killed writers have left. */
async function removeParts(path: string): Promise<void> {
  for (const name of await readdir(dirname(path)))
    if (name.startsWith(`${basename(path)}.`) && name.endsWith('.part'))
      await rm(join(dirname(path), name), { force: true });
}

async function ifThere<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}
