import { Transform, pipeline } from 'node:stream';
import type { Readable, TransformCallback } from 'node:stream';

import { EXCEPTION_TAG_HEADER_NAME, ResultSet, extractErrorAtTheEndOfChunk } from '@clickhouse/client';

import { errorCode } from '../error-code.ts';
import { isNetworkError } from '../network-errors.ts';
import { createYielding, mapYielding } from '../yielding.ts';
import { attempt, unavailable } from './attempt.ts';
import type { Answer, HttpInterface, Params } from './http-interface.ts';
import { QUOTED } from './reader-profile.ts';
import type { Settings } from './reader-profile.ts';

/** A schema, or what parses a row as strictly. */
export interface RowParser<R> {
  parse(row: unknown): R;
}

/** A named statement: its text (made from the tables being served) and the border parser of its rows. */
export interface ChQuery<R> {
  /** Goes to logs, metrics and the server's `log_comment`. */
  readonly name: string;
  readonly sql: string;
  readonly row: RowParser<R>;
  /**
   * The parser gets the line of a row: the texts of its columns with tabs between them, none of which may need escaping.
   * JSON takes ClickHouse and this process twice as long.
   */
  readonly isText?: true;
}

/** A named statement whose answer is a file. */
export interface FileStatement {
  readonly name: string;
  /** Without the FORMAT. */
  readonly sql: string;
  /** ClickHouse's name of the format. */
  readonly format: string;
  /** What a row takes of the file, about. */
  readonly rowBytes: number;
  /** All rows are read before the file begins. */
  readonly isSorted: boolean;
}

export interface ReadOptions {
  /** Cancels the query. */
  readonly signal?: AbortSignal;
  /** Longest time for an answer, of a file until it begins; by default that of the client. */
  readonly timeoutMs?: number;
  readonly settings?: Settings;
}

/** The statements that return rows. */
export interface Reads {
  rows<R>(query: ChQuery<R>, params?: Params, options?: ReadOptions): Promise<R[]>;
  /**
   * Hands on the rows of a large result as they arrive, some hundred at a time: neither the whole answer is held in memory nor
   * the event loop for longer than one part takes. What `onRows` throws cancels the query.
   */
  eachPart<R>(
    query: ChQuery<R>,
    params: Params | undefined,
    onRows: (rows: readonly R[]) => void,
    options?: ReadOptions,
  ): Promise<void>;
  /**
   * The answer of a statement as it is, once it begins; the signal of the options applies until its end. The stream ends only
   * where the whole answer was read, and with an error otherwise, also where the query fails after the answer had begun.
   */
  file(statement: FileStatement, params: Params, options: ReadOptions): Promise<Readable>;
}

/** What most queries need of a client. */
export type RowReader = Pick<Reads, 'rows'>;

/** Before 25.11, ClickHouse ends JSON that fails as if it were whole, with a row that has the error. */
const FAILING = { http_write_exception_in_output_format: 0 } as const;

/** Starting threads that format a page takes 0.7 ms, a tenth of its CPU. */
const ONE_FORMATTER = { output_format_parallel_formatting: 0 } as const;

/** `settingsOf` returns the settings as the user may send them; null: none. */
export function createReads(
  http: HttpInterface,
  timeoutMs: number,
  settingsOf: (settings: Settings, signal: AbortSignal) => Promise<Settings | null>,
): Reads {
  const read = async (
    { name, sql, format = 'JSONEachRow' }: Pick<ChQuery<unknown>, 'name' | 'sql'> & Partial<FileStatement>,
    params: Params | undefined,
    { signal, settings }: ReadOptions & { readonly signal: AbortSignal },
  ): Promise<Answer> => {
    const own = await settingsOf({ ...QUOTED, ...FAILING, ...settings, log_comment: name }, signal);
    return await http.send({ sql: `${sql}\nFORMAT ${format}`, params, settings: own ?? {}, signal });
  };

  return {
    async rows(query, params, options = {}) {
      const settings = { ...ONE_FORMATTER, ...options.settings };
      const format = formatOf(query);
      const lines = await attempt(options.timeoutMs ?? timeoutMs, options.signal ?? null, async (signal) => {
        return await againIfClosed(
          async () => await linesOf(await read({ ...query, format }, params, { settings, signal })),
        );
      });
      return await mapYielding(lines, (line) => query.row.parse(query.isText ? line : JSON.parse(line)));
    },
    async eachPart(query, params, onRows, options = {}) {
      let isHandedOn = false;
      const yielding = createYielding();
      await attempt(options.timeoutMs ?? timeoutMs, options.signal ?? null, async (signal) => {
        // Another attempt would hand on the same rows again.
        if (isHandedOn) throw unavailable('The answer of ClickHouse broke off', null);
        const format = formatOf(query);
        const { body, headers } = await read({ ...query, format }, params, { ...options, signal });
        const result = new ResultSet(body, format, '', ignoreError, { ...headers });
        for await (const part of result.stream<unknown>()) {
          isHandedOn = true;
          onRows(part.map((row) => query.row.parse(query.isText ? row.text : row.json())));
          await yielding();
        }
      });
    },
    async file(statement, params, options) {
      // The time of the answer is up to its reader, so the attempt ends when it begins.
      const answer = await attempt(options.timeoutMs ?? timeoutMs, options.signal ?? null, async (signal) => {
        return await againIfClosed(async () => await read(statement, params, { ...options, signal }));
      });
      return wholeFile(answer);
    },
  };
}

const formatOf = ({ isText }: Pick<ChQuery<unknown>, 'isText'>) =>
  isText === true ? 'TabSeparated' : 'JSONEachRow';

/** Every error reaches the caller anyway. */
const ignoreError = (): void => {};

/** Follows the last row of an answer that ends with an error; no row contains a bare carriage return. */
const EXCEPTION_MARK = '\r\n__exception__\r\n';

/** The rows of a whole answer. @throws ClickHouseError when the query failed after the answer had begun */
async function linesOf({ body, headers }: Answer): Promise<string[]> {
  const { bytes, error } = await readWhole(body);
  const tag = headers[EXCEPTION_TAG_HEADER_NAME];
  // The server closes the connection after an exception.
  if (typeof tag === 'string' && bytes.includes(EXCEPTION_MARK))
    throw extractErrorAtTheEndOfChunk(bytes, tag);
  if (error !== null) throw error;
  const lines = bytes.toString().split('\n');
  if (lines.at(-1) === '') lines.pop();
  return lines;
}

/**
 * An answer of which every part is passed on only when the next one has shown that it ends in no exception. It fails at the
 * mark of one: the server may take seconds to close the connection.
 */
function wholeFile({ body, headers }: Answer): Readable {
  const tag = headers[EXCEPTION_TAG_HEADER_NAME];
  // The tag is random, so that no data contain it.
  const mark = Buffer.from(typeof tag === 'string' ? `${EXCEPTION_MARK}${tag}\r\n` : '');
  let held: Buffer = Buffer.alloc(0);
  const checked = new Transform({
    transform(chunk: Buffer, _, done: TransformCallback) {
      // Joining whole parts takes as long as their hash.
      const seam = Buffer.concat([held.subarray(-mark.length), chunk.subarray(0, mark.length)]);
      if (mark.length > 0 && (seam.includes(mark) || chunk.includes(mark))) {
        const end = Buffer.concat([held, chunk]);
        const text = end.subarray(end.indexOf(mark) + mark.length).toString();
        done(unavailable(`The answer of ClickHouse broke off: ${text.trimEnd()}`, null));
        return;
      }
      // A part shorter than the mark may have only its middle.
      const isShort = chunk.length < mark.length;
      const passed = isShort ? null : held;
      held = isShort ? Buffer.concat([held, chunk]) : chunk;
      done(null, passed);
    },
    flush: (done) => done(null, held),
  });
  body.once('error', (error) => {
    if (isNetworkError(error)) checked.destroy(unavailable('The answer of ClickHouse broke off', error));
  });
  // An error of either destroys both, and reaches the reader of the second.
  pipeline(body, checked, ignoreError);
  return checked;
}

/** All that arrives, and the error that ends it. `for await` would lose the bytes right before an error. */
async function readWhole(body: Readable): Promise<{ readonly bytes: Buffer; readonly error: Error | null }> {
  const chunks: Buffer[] = [];
  return await new Promise((resolve) => {
    const end = (error: Error | null): void => resolve({ bytes: Buffer.concat(chunks), error });
    body.on('data', (chunk: Buffer) => void chunks.push(chunk));
    body.on('end', () => end(null));
    body.on('error', end);
  });
}

/** Codes of a connection that the server closed: it may close an idle one just when it is used again. */
const CLOSED_CODES: ReadonlySet<string | null> = new Set(['ECONNRESET', 'UND_ERR_SOCKET']);

/** Sends a read once more if its connection was closed. */
async function againIfClosed<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!CLOSED_CODES.has(errorCode(error))) throw error;
    return await read();
  }
}
