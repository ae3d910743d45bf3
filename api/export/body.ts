import { createHash } from 'node:crypto';
import { PassThrough, pipeline } from 'node:stream';
import type { Readable, Transform } from 'node:stream';
import { constants, createGzip, createZstdCompress } from 'node:zlib';

import type { ExportFormat } from '../../projections/transfers/queries.ts';

/** What a whole file turned out to be. */
export interface FileSummary {
  readonly rows: number;
  /** Hexadecimal. */
  readonly sha256: string;
  readonly bytes: number;
}

export interface ExportBodyOptions {
  readonly file: Readable;
  readonly format: ExportFormat;
  /** null: they are counted. */
  readonly rows: number | null;
  readonly coding: Coding;
  /** Awaited before the last bytes are sent. */
  readonly onEnd: (summary: FileSummary) => Promise<void>;
}

export type Coding = 'zstd' | 'gzip' | 'identity';

/** A client that takes nothing for so long is dropped: ClickHouse keeps its query open meanwhile. */
const STALL_MS = 60_000;
const LOOK_MS = 5000;

/** The file in its content coding. It ends only when the file has ended and `onEnd` has resolved. */
export function exportBody({ file, format, rows, coding, onEnd }: ExportBodyOptions): Readable {
  const hash = createHash('sha256');
  const countLines = lineCounter(format === 'csv');
  let [bytes, lines] = [0, 0];
  const metered = async function* (chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      hash.update(chunk);
      bytes += chunk.length;
      if (rows === null) lines += countLines(chunk);
      yield chunk;
    }
    const counted = rows ?? lines - (format === 'csv' ? 1 : 0);
    await onEnd({ rows: counted, sha256: hash.digest('hex'), bytes });
  };
  const coded = coders[coding]();
  pipeline(file, metered, coded, () => clearInterval(timer));
  let [seen, stalledMs] = [-1, 0];
  const timer = setInterval(() => {
    // Bytes that wait, and none more that could be written: the client is what everything waits for.
    stalledMs = coded.readableLength > 0 && bytes === seen ? stalledMs + LOOK_MS : 0;
    seen = bytes;
    if (stalledMs >= STALL_MS) coded.destroy(new Error('the client reads too slowly'));
  }, LOOK_MS);
  return coded;
}

const coders: Readonly<Record<Coding, () => Transform>> = {
  zstd: () => createZstdCompress(),
  // Faster than ClickHouse formats the rows; a higher level is not.
  gzip: () => createGzip({ level: constants.Z_BEST_SPEED }),
  identity: () => new PassThrough(),
};

const NEWLINE = 0x0a;
const QUOTE = 0x22;

/** Counts the lines that end in a chunk. In CSV, a line break within quotes ends none. */
function lineCounter(isCsv: boolean): (chunk: Buffer) => number {
  let isQuoted = false;
  return (chunk) => {
    let lines = 0;
    for (const byte of chunk) {
      if (byte === NEWLINE && !isQuoted) lines += 1;
      else if (isCsv && byte === QUOTE) isQuoted = !isQuoted;
    }
    return lines;
  };
}

/** The best content coding that an `Accept-Encoding` header allows; `identity` without one. */
export function codingOf(accepted: string): Coding {
  const weights = new Map(
    accepted.split(',').map((part) => {
      const [name = '', ...params] = part.toLowerCase().split(';');
      const q = params.map((param) => /^\s*q=([0-9.]+)\s*$/.exec(param)?.[1]).find((text) => text);
      return [name.trim(), q === undefined ? 1 : Number(q)];
    }),
  );
  const weightOf = (name: Coding): number => weights.get(name) ?? weights.get('*') ?? 0;
  const [zstd, gzip] = [weightOf('zstd'), weightOf('gzip')];
  if (zstd <= 0 && gzip <= 0) return 'identity';
  return zstd >= gzip ? 'zstd' : 'gzip';
}
