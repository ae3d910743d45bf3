import { isUtf8 } from 'node:buffer';
import { createReadStream } from 'node:fs';

import { TokenParser, TokenType, Tokenizer } from '@streamparser/json';
import { CsvError, parse } from 'csv-parse';

import { AppError, errorMessage } from '../../../../schemas/errors.ts';
import { readCell } from './cells.ts';
import { FILE_KINDS, fieldsOf, isFileKind } from './formats.ts';
import type { FileKind } from './formats.ts';

/** A record of a file, or an error; a syntax error is the last item. */
export type Found =
  | { readonly kind: FileKind; readonly line: number; readonly record: unknown }
  | { readonly line: number; readonly fault: string };

/** Rejects with INVALID if a file cannot be read. */
export type ReadFile = (path: string) => AsyncIterable<Found>;

/** The bytes of a file up to the first line that is not UTF-8, where it throws `NotText`. */
async function* bytesOf(path: string): AsyncIterable<Buffer> {
  const stream = createReadStream(path, { highWaterMark: 1 << 18 });
  /** Bytes that may be the beginning of a character. */
  let rest = Buffer.alloc(0);
  try {
    for await (const read of stream) {
      if (!Buffer.isBuffer(read)) continue;
      const chunk = Buffer.concat([rest, read]);
      const whole = chunk.subarray(0, endOfCharacters(chunk));
      if (!isUtf8(whole)) {
        yield* goodLinesOf(whole);
        throw new NotText();
      }
      yield whole;
      rest = chunk.subarray(whole.length);
    }
    if (rest.length > 0) throw new NotText();
  } catch (cause) {
    if (cause instanceof NotText) throw cause;
    throw new AppError('INVALID', `Cannot read ${path}: ${errorMessage(cause)}`, { cause });
  }
}
class NotText extends Error {}
const NOT_TEXT = 'The file is not UTF-8 text from this line on.';

const NEWLINE = 0x0a;

/** Index of a trailing incomplete character; the length if there is none. */
function endOfCharacters(bytes: Buffer): number {
  for (let at = bytes.length - 1; at >= Math.max(0, bytes.length - 4); at -= 1) {
    const byte = bytes[at] ?? 0;
    if (byte < 0x80) return bytes.length;
    if (byte < 0xc0) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return at + length > bytes.length ? at : bytes.length;
  }
  return bytes.length;
}

/** The lines before the first invalid one. */
function* goodLinesOf(bytes: Buffer): Iterable<Buffer> {
  for (let from = 0; from < bytes.length;) {
    const end = bytes.indexOf(NEWLINE, from) + 1;
    const line = bytes.subarray(from, end === 0 ? bytes.length : end);
    if (!isUtf8(line)) return;
    yield line;
    from += line.length;
  }
}

/**
 * Reads one JSON object of arrays of records by kind, as a stream; a member whose name begins with `_` is a comment.
 */
export async function* readJson(path: string): AsyncIterable<Found> {
  const reader = createJsonReader();
  try {
    for await (const chunk of bytesOf(path)) {
      for (let from = 0; from < chunk.length;) {
        const end = chunk.indexOf(NEWLINE, from) + 1;
        reader.write(chunk.subarray(from, end === 0 ? chunk.length : end), end !== 0);
        if (end === 0) break;
        from = end;
      }
      yield* reader.take();
    }
    reader.end();
    yield* reader.take();
  } catch (error) {
    yield* reader.take();
    if (error instanceof AppError) throw error;
    const { line } = reader;
    yield { line, fault: error instanceof NotText ? NOT_TEXT : `This is not JSON: ${messageOf(error)}` };
  }
}

const messageOf = (error: unknown): string =>
  errorMessage(error)
    .replace(/ (?:at chunk position|in state) .*$/s, '')
    .replace(/\s+/g, ' ');

interface JsonReader {
  readonly line: number;
  /** @param isWhole whether the line ends here */
  write(piece: Buffer, isWhole: boolean): void;
  end(): void;
  /** Items found since the last call. */
  take(): Found[];
}

/** Values come from the parser; lines, and what the parser skips, from the tokenizer. */
function createJsonReader(): JsonReader {
  const tokenizer = new Tokenizer();
  const values = new TokenParser({ paths: ['$.*.*'], keepStack: false });
  let line = 1;
  let found: Found[] = [];
  let depth = 0;
  /** null: outside the records of a kind. */
  let kind: FileKind | null = null;
  let text = '';
  let recordLine = 1;
  let fields = new Set<string>();
  let isKindNamed = false;
  const fault = (message: string): void => void found.push({ line, fault: message });

  const nameKind = (name: string): void => {
    kind = isFileKind(name) ? name : null;
    if (kind === null && !name.startsWith('_')) {
      fault(`Unknown kind "${shown(name)}": use ${FILE_KINDS.join(', ')}.`);
    }
    isKindNamed = true;
  };
  const nameField = (name: string): void => {
    if (kind !== null && fields.has(name)) fault(`${kind}: duplicate field "${shown(name)}".`);
    fields.add(name);
  };
  const look = (token: TokenType, value: unknown): void => {
    if (isKindNamed) {
      isKindNamed = false;
      if (kind !== null && token !== TokenType.LEFT_BRACKET) {
        fault(`${kind}: use an array of records.`);
        kind = null;
      }
    }
    if (depth === 0 && token !== TokenType.LEFT_BRACE)
      throw new Error('use one object with an array of records per kind');
    if (token === TokenType.STRING) text = String(value);
    if (token === TokenType.COLON && depth === 1) nameKind(text);
    if (token === TokenType.COLON && depth === 3) nameField(text);
    if (token === TokenType.LEFT_BRACE || token === TokenType.LEFT_BRACKET) {
      if (depth === 2) {
        recordLine = line;
        fields = new Set();
      }
      depth += 1;
    } else if (token === TokenType.RIGHT_BRACE || token === TokenType.RIGHT_BRACKET) depth -= 1;
    else if (depth === 2) recordLine = line;
  };

  tokenizer.onToken = (parsed) => {
    look(parsed.token, parsed.value);
    values.write(parsed);
  };
  values.onValue = ({ value }) => {
    if (kind !== null) found.push({ kind, line: recordLine, record: value });
  };
  return {
    get line() {
      return line;
    },
    write(piece, isWhole) {
      tokenizer.write(piece);
      if (isWhole) line += 1;
    },
    end() {
      tokenizer.end();
      if (!values.isEnded) throw new Error('unexpected end of file');
    },
    take() {
      const taken = found;
      found = [];
      return taken;
    },
  };
}

/** Reads CSV rows of one kind with a header line. A column whose name begins with `_` is a comment. */
export function csvReader(kind: FileKind): ReadFile {
  return async function* readCsv(path) {
    let rows: Row[] = [];
    const parser = createCsvParser((row) => rows.push(row));
    let header: readonly string[] | null = null;
    let line = 1;
    let emptyBefore = 0;
    function* take(): Iterable<Found> {
      for (const { cells, emptyLines } of rows) {
        line += emptyLines - emptyBefore;
        emptyBefore = emptyLines;
        if (header === null) {
          header = cells.map((name) => name.trim());
          yield* headerFaults(kind, header, line);
        } else if (cells.length !== header.length) {
          yield {
            line,
            fault: `The row has ${cells.length} cells, but the header line has ${header.length}.`,
          };
        } else {
          yield { kind, line, record: readRow(fieldsOf(kind), header, cells) };
        }
        line += 1 + cells.reduce((sum, cell) => sum + cell.split('\n').length - 1, 0);
      }
      rows = [];
    }
    try {
      for await (const chunk of bytesOf(path)) {
        await parser.write(chunk);
        yield* take();
      }
      await parser.end();
      yield* take();
      if (header === null) yield { line, fault: 'The header line, which names the fields, is missing.' };
    } catch (error) {
      yield* take();
      if (error instanceof NotText) yield { line, fault: NOT_TEXT };
      else if (error instanceof CsvError) yield { line, fault: `This is not CSV: ${messageOf(error)}` };
      else throw error;
    }
  };
}

interface Row {
  readonly cells: readonly string[];
  /** Empty lines above it in the file. */
  readonly emptyLines: number;
}

/** Yields rows while parsing, so that rows before an error are kept. */
function createCsvParser(onRow: (row: Row) => void): {
  write(chunk: Buffer): Promise<void>;
  end(): Promise<void>;
} {
  const parser = parse({
    bom: true,
    relax_column_count: true,
    skip_empty_lines: true,
    record_delimiter: ['\r\n', '\n'],
    on_record: (cells: readonly string[], { empty_lines: emptyLines }) => {
      onRow({ cells, emptyLines });
      return null;
    },
  });
  const failed = new Promise<never>((_, reject) => parser.once('error', reject));
  failed.catch(() => {});
  return {
    async write(chunk) {
      await Promise.race([failed, new Promise<void>((done) => parser.write(chunk, () => done()))]);
      // A write's error arrives after its callback.
      if (parser.errored !== null) throw parser.errored;
    },
    async end() {
      const finished = new Promise<void>((done) => parser.once('finish', () => done()));
      parser.end();
      await Promise.race([failed, finished]);
    },
  };
}

/** The known fields of the header; errors in names are reported at the header line. */
function readRow(
  known: readonly string[],
  header: readonly string[],
  cells: readonly string[],
): Record<string, unknown> {
  const record: Record<string, unknown> = {};
  for (const [at, field] of header.entries()) {
    const value = known.includes(field) ? readCell(field, cells[at] ?? '') : undefined;
    if (value !== undefined) record[field] = value;
  }
  return record;
}

/** Reports an invalid name once, not for every row. */
function* headerFaults(kind: FileKind, header: readonly string[], line: number): Iterable<Found> {
  const known = fieldsOf(kind);
  for (const [at, name] of header.entries()) {
    if (name.startsWith('_')) continue;
    if (header.indexOf(name) < at) yield { line, fault: `Duplicate field "${shown(name)}".` };
    else if (!known.includes(name)) yield { line, fault: unknownField(kind, name) };
  }
}

const shown = (text: string): string => text.slice(0, 100);

/** Fields of an API answer that are not part of a record. */
const KEPT_BY_ITSELF = new Set([
  'id',
  'created_at',
  'updated_at',
  'impression_count',
  'click_count',
  'dapp_count',
]);

export function unknownField(kind: FileKind, name: string): string {
  const why = KEPT_BY_ITSELF.has(name) ? ': the service sets it' : '';
  return `${kind}: there is no field "${shown(name)}"${why}.`;
}
