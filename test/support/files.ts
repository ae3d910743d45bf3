import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Runs `work` on a temporary file with this content. */
export async function withFile<T>(content: string | Buffer, work: (path: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'tds-file-'));
  try {
    const path = join(folder, 'file');
    writeFileSync(path, content);
    return await work(path);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What is started on a temporary folder, which is removed once it is stopped, or did not start. */
export async function onFolder<T extends { stop(): Promise<void> }>(
  prefix: string,
  start: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), prefix));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  try {
    const started = await start(folder);
    return {
      ...started,
      async stop() {
        await started.stop();
        remove();
      },
    };
  } catch (error) {
    remove();
    throw error;
  }
}

export async function allOf<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}
