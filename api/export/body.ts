import { createHash } from 'node:crypto';
import { PassThrough, pipeline } from 'node:stream';
import type { Readable, Transform } from 'node:stream';
import { constants, createGzip, createZstdCompress } from 'node:zlib';

import { acceptedWeights } from '../http/accept.ts';
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
  /** null: every line is one, besides the line of names in CSV. */
  readonly rows: number | null;
  readonly coding: Coding;
  /** Awaited before the last bytes are sent. */
  readonly onEnd: (summary: FileSummary) => Promise<void>;
}

export type Coding = 'zstd' | 'gzip' | 'identity';

/** The file in its content coding. It ends only when the file has ended and `onEnd` has resolved. */
export function exportBody({ file, format, rows, coding, onEnd }: ExportBodyOptions): Readable {
  const hash = createHash('sha256');
  let [bytes, lines] = [0, 0];
  const metered = async function* (chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      hash.update(chunk);
      bytes += chunk.length;
      if (rows === null) lines += newlines(chunk);
      yield chunk;
    }
    const counted = rows ?? lines - (format === 'csv' ? 1 : 0);
    await onEnd({ rows: counted, sha256: hash.digest('hex'), bytes });
  };
  const coded = coders[coding]();
  // An error destroys `coded`, too, so its reader gets it.
  pipeline(file, metered, coded, () => {});
  return coded;
}

const coders: Readonly<Record<Coding, () => Transform>> = {
  zstd: () => createZstdCompress(),
  // Faster than ClickHouse formats the rows; a higher level is not.
  gzip: () => createGzip({ level: constants.Z_BEST_SPEED }),
  identity: () => new PassThrough(),
};

const NEWLINE = 0x0a;

function newlines(chunk: Buffer): number {
  let lines = 0;
  for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}

/** The best content coding that an `Accept-Encoding` header allows; `identity` without one. */
export function codingOf(accepted: string): Coding {
  const weightOf = acceptedWeights(accepted);
  const [zstd, gzip, identity] = [weightOf('zstd') ?? 0, weightOf('gzip') ?? 0, weightOf('identity') ?? 0];
  if (Math.max(zstd, gzip) <= 0 || identity > Math.max(zstd, gzip)) return 'identity';
  return zstd >= gzip ? 'zstd' : 'gzip';
}
