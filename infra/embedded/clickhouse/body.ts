import { createWriteStream } from 'node:fs';
import { mkdir, readdir, rm } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

import { ClickHouseException } from './errors.ts';
import { insertHead } from './insert.ts';
import type { InsertHead } from './insert.ts';
import { bodyOf, multipartFields } from './request.ts';

/** The text of a query, or the head of an INSERT with its data still to be read. */
export type Text =
  | { readonly kind: 'statement'; readonly sql: string; readonly fields: ReadonlyMap<string, string> }
  | { readonly kind: 'insert'; readonly head: InsertHead; readonly data: AsyncIterable<Uint8Array> };

/** The head of an INSERT must end within this many bytes. */
const headBytes = 1 << 20;
const maxTextBytes = 64 << 20;

/** Reads a statement to its end, or an INSERT up to its data. */
export async function readText(request: IncomingMessage, urlQuery: string): Promise<Text> {
  const source = bodyOf(request)[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  const pieces: Buffer[] = urlQuery === '' ? [] : [Buffer.from(`${urlQuery}\n`)];
  let length = pieces[0]?.length ?? 0;
  let ended = false;
  const more = async (): Promise<void> => {
    const step = await source.next();
    ended = step.done === true;
    if (step.done !== true) {
      pieces.push(step.value);
      length += step.value.length;
    }
  };

  while (!ended && length < headBytes) await more();
  const start = Buffer.concat(pieces);
  const multipart = (request.headers['content-type'] ?? '').startsWith('multipart/form-data');
  const head = multipart ? null : insertHead(start.subarray(0, headBytes * 2).toString('latin1'));
  if (head !== null) {
    return { kind: 'insert', head, data: remaining(start.subarray(head.dataStart), source) };
  }
  while (!ended) {
    if (length > maxTextBytes) throw new ClickHouseException(62, 'SYNTAX_ERROR', 'Max query size exceeded');
    await more();
  }
  const whole = Buffer.concat(pieces);
  const fields = await multipartFields(
    request,
    whole.subarray(urlQuery === '' ? 0 : Buffer.byteLength(urlQuery) + 1),
  );
  const sql = fields === null ? whole.toString('utf8') : `${urlQuery}${fields.get('query') ?? ''}`;
  return { kind: 'statement', sql: sql.trim(), fields: fields ?? new Map<string, string>() };
}

async function* remaining(first: Buffer, source: AsyncIterator<Buffer>): AsyncGenerator<Uint8Array> {
  if (first.length > 0) yield first;
  for (let step = await source.next(); step.done !== true; step = await source.next()) yield step.value;
}

export interface Spool {
  /**
   * Writes all data to a file before anything is inserted: an interrupted upload inserts no rows, and data cannot be
   * executed as SQL (chDB runs inline data after an empty line as a statement).
   */
  write(data: AsyncIterable<Uint8Array>): Promise<{ path: string; bytes: number; remove(): Promise<void> }>;
}

/** `folder` is a relative path: the engine expands `*`, `?` and `{}` in paths, and DATA_DIR may contain them. */
export async function openSpool(folder: string): Promise<Spool> {
  await mkdir(folder, { recursive: true });
  // Files of a killed process.
  for (const name of await readdir(folder)) await rm(`${folder}/${name}`, { force: true });
  let count = 0;
  return {
    async write(data) {
      const path = `${folder}/${++count}`;
      const file = createWriteStream(path);
      try {
        await pipeline(Readable.from(data, { objectMode: false }), file);
      } catch (error) {
        await rm(path, { force: true });
        throw error;
      }
      return { path, bytes: file.bytesWritten, remove: () => rm(path, { force: true }) };
    },
  };
}
