import { createWriteStream } from 'node:fs';
import { mkdir, open, readFile, rename, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
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
      const part = `${path}.part`;
      await pipeline(body, createWriteStream(part, { flush: true }), { signal });
      await rename(part, path);
    },
  };
}

async function ifThere<T>(work: Promise<T>): Promise<T | null> {
  try {
    return await work;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}
