import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Transform } from 'node:stream';
import { constants, createBrotliCompress, createDeflate, createGzip, createZstdCompress } from 'node:zlib';

import { exceptionText, statusOf } from './errors.ts';
import type { ClickHouseException } from './errors.ts';
import type { Stats } from './engine.ts';
import type { HttpQuery } from './request.ts';

/** An answer with `waitEnd` is buffered up to this size; a longer one is sent before its outcome is known. */
const maxBufferedBytes = 64 << 20;

export interface Answer {
  /** Sets the headers of a format. */
  format(name: string): void;
  write(chunk: Uint8Array): Promise<void>;
  end(stats: Stats, written: boolean): Promise<void>;
  /** Sends an exception: with its status if nothing was sent yet, otherwise in the body, then closing the connection. */
  fail(error: ClickHouseException): void;
}

/** Writes one HTTP answer in the format of ClickHouse. */
export function createAnswer(
  response: ServerResponse,
  options: { encoding: HttpQuery['encoding']; waitEnd: boolean; queryId: string; version: string },
): Answer {
  const { encoding, waitEnd, queryId, version } = options;
  const tag = randomBytes(8).toString('hex');
  const held: Uint8Array[] = [];
  let heldLength = 0;
  let out: ServerResponse | Transform | null = null;
  const began = performance.now();

  response.setHeader('X-ClickHouse-Query-Id', queryId);
  response.setHeader('X-ClickHouse-Server-Display-Name', 'embedded');
  response.setHeader('X-ClickHouse-Timezone', 'UTC');

  const open = (): ServerResponse | Transform => {
    if (out !== null) return out;
    const compressor = compressorOf(encoding);
    if (compressor !== null && encoding !== null) response.setHeader('Content-Encoding', encoding);
    response.setHeader('X-ClickHouse-Exception-Tag', tag);
    response.writeHead(200);
    compressor?.pipe(response);
    out = compressor ?? response;
    return out;
  };

  const send = async (chunk: Uint8Array): Promise<void> => {
    const stream = open();
    if (stream.write(chunk)) return;
    // The stream of a disconnected client never drains.
    const closed = new AbortController();
    const onClose = (): void => closed.abort();
    response.once('close', onClose);
    try {
      await once(stream, 'drain', { signal: closed.signal });
    } catch {
      // The connection is closed, and the query is being killed.
    } finally {
      response.off('close', onClose);
    }
  };
  const flush = async (): Promise<void> => {
    for (const chunk of held.splice(0)) await send(chunk);
    heldLength = 0;
  };

  return {
    format(name) {
      response.setHeader('X-ClickHouse-Format', name);
      response.setHeader('Content-Type', contentType(name));
    },
    async write(chunk) {
      if (chunk.length === 0) return;
      if (!waitEnd || out !== null) return send(chunk);
      held.push(chunk);
      heldLength += chunk.length;
      if (heldLength > maxBufferedBytes) await flush();
    },
    async end(stats, written) {
      if (out === null) {
        const count = { rows: String(stats.rowsRead), bytes: String(stats.bytesRead) };
        const summary = {
          read_rows: count.rows,
          read_bytes: count.bytes,
          written_rows: written ? count.rows : '0',
          written_bytes: written ? count.bytes : '0',
          total_rows_to_read: '0',
          result_rows: String(written ? stats.rowsRead : stats.rows),
          result_bytes: '0',
          elapsed_ns: String(Math.round((performance.now() - began) * 1e6)),
        };
        response.setHeader('X-ClickHouse-Summary', JSON.stringify(summary));
      }
      await flush();
      open().end();
    },
    fail(error) {
      const text = exceptionText(error, version);
      if (out === null) {
        response.setHeader('X-ClickHouse-Exception-Code', String(error.code));
        response.setHeader('Content-Type', 'text/plain; charset=UTF-8');
        response.writeHead(statusOf(error));
        response.end(text);
        return;
      }
      const length = Buffer.byteLength(text);
      const mark = `\r\n__exception__\r\n${tag}\r\n${text}${length} ${tag}\r\n__exception__\r\n`;
      const stream = out;
      // Without the last chunk of the transfer, a client that ignores the exception sees a broken answer, not a short one.
      if (stream === response) response.write(mark, () => response.destroy());
      else stream.end(mark, () => setImmediate(() => response.destroy()));
    },
  };
}

function contentType(format: string): string {
  if (/^JSON.*EachRow/.test(format) || format === 'NDJSON' || format === 'JSONLines')
    return 'application/x-ndjson; charset=UTF-8';
  if (format.startsWith('JSON')) return 'application/json; charset=UTF-8';
  if (format.startsWith('CSV')) return 'text/csv; charset=UTF-8';
  if (/^(TSV|TabSeparated)/.test(format)) return 'text/tab-separated-values; charset=UTF-8';
  return /^(Pretty|Vertical|Values|Markdown)/.test(format)
    ? 'text/plain; charset=UTF-8'
    : 'application/octet-stream';
}

function compressorOf(encoding: HttpQuery['encoding']): Transform | null {
  switch (encoding) {
    case null:
      return null;
    case 'gzip':
      return createGzip({ level: 1 });
    case 'deflate':
      return createDeflate({ level: 1 });
    case 'br':
      return createBrotliCompress({ params: { [constants.BROTLI_PARAM_QUALITY]: 3 } });
    case 'zstd':
      return createZstdCompress({ params: { [constants.ZSTD_c_compressionLevel]: 1 } });
  }
}
