import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, zstdDecompressSync } from 'node:zlib';

import { DuckDBInstance } from '@duckdb/node-api';
import { tableFromIPC } from 'apache-arrow';

/** A client of exports that reads their files with DuckDB, and Arrow with its own library. */

export const formats = ['csv', 'ndjson', 'parquet', 'arrow'] as const;
export type Format = (typeof formats)[number];

export interface Download {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly trailers: IncomingMessage['trailers'];
  /** As sent. */
  readonly body: Buffer;
}

/** Begins a download; the answer is paused until it is read. */
export async function begin(url: string, headers: Record<string, string>): Promise<IncomingMessage> {
  return await new Promise((resolve, reject) => {
    get(url, { headers, agent: false }, resolve).on('error', reject);
  });
}

/** @throws where the transfer breaks */
export async function finish(answer: IncomingMessage): Promise<Download> {
  const parts: Buffer[] = [];
  for await (const part of answer) parts.push(part as Buffer);
  const { statusCode: status = 0, headers, trailers } = answer;
  return { status, headers, trailers, body: Buffer.concat(parts) };
}

/** `whole` once all has arrived, or how the transfer broke. */
export async function outcomeOf(answer: IncomingMessage): Promise<string> {
  try {
    await finish(answer);
    return 'whole';
  } catch (error) {
    return String(error);
  }
}

/** The first difference between two lists of rows; null: none. */
export function firstDifference(rows: readonly FileRow[], wanted: readonly FileRow[]): string | null {
  if (rows.length !== wanted.length) return `${rows.length} rows, not ${wanted.length}`;
  for (const [i, row] of rows.entries()) {
    const should = wanted[i] ?? {};
    if (!isSame(row, should)) return `row ${i}: ${JSON.stringify(row)}, not ${JSON.stringify(should)}`;
  }
  return null;
}

function isSame(row: FileRow, other: FileRow): boolean {
  const [names, otherNames] = [Object.keys(row), Object.keys(other)];
  return (
    names.length === otherNames.length &&
    names.every((name, i) => name === otherNames[i] && exact(name, row[name]) === exact(name, other[name]))
  );
}

/** What must be equal: `value_float` is approximate. */
const exact = (name: string, value: FileRow[string] | undefined) =>
  name === 'value_float' && typeof value === 'number' ? Number(value.toPrecision(12)) : value;

/** The file without its content coding. */
export function fileOf({ headers, body }: Download): Buffer {
  const coding = headers['content-encoding'];
  if (coding === 'gzip') return gunzipSync(body);
  return coding === 'zstd' ? zstdDecompressSync(body) : body;
}

export const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

/** A row: by column, text, or a number where it is approximate. */
export type FileRow = Readonly<Record<string, string | number | null>>;

const APPROXIMATE = ['value_float', 'price_usd'];
const readers = { csv: 'read_csv', ndjson: 'read_json', parquet: 'read_parquet' } as const;

/** What a file has, in its order, and the types of its columns. */
export async function rowsOf(
  format: Format,
  bytes: Buffer,
): Promise<{ rows: FileRow[]; types: Record<string, string> }> {
  if (format === 'arrow') {
    const table = tableFromIPC(bytes);
    const types = Object.fromEntries(table.schema.fields.map(({ name, type }) => [name, String(type)]));
    return { rows: table.toArray().map((row) => plain(row.toJSON())), types };
  }
  const folder = mkdtempSync(join(tmpdir(), 'tds-export-'));
  const db = await DuckDBInstance.create();
  const connection = await db.connect();
  try {
    const path = join(folder, 'file');
    writeFileSync(path, bytes);
    // DuckDB takes hexadecimal text for numbers, so it is told the types of text formats.
    const options = {
      csv: `, header = true, columns = {${COLUMNS}}, nullstr = '', allow_quoted_nulls = false`,
      ndjson: `, format = 'newline_delimited', columns = {${COLUMNS}}`,
      parquet: '',
    };
    const from = `${readers[format]}('${path}'${options[format]})`;
    const described = await connection.runAndReadAll(`DESCRIBE SELECT * FROM ${from}`);
    const types = Object.fromEntries(
      described.getRowObjects().map((row) => [String(row['column_name']), String(row['column_type'])]),
    );
    const read = await connection.runAndReadAll(
      `SELECT * REPLACE (epoch_ms("timestamp"::TIMESTAMPTZ) AS "timestamp") FROM ${from}`,
    );
    return { rows: read.getRowObjects().map(plain), types };
  } finally {
    connection.closeSync();
    db.closeSync();
    rmSync(folder, { recursive: true });
  }
}

const COLUMNS = [
  'block BIGINT',
  'block_hash VARCHAR',
  'timestamp VARCHAR',
  'txhash VARCHAR',
  'event_index BIGINT',
  'token_address VARCHAR',
  'token_symbol VARCHAR',
  'token_decimals BIGINT',
  'kind VARCHAR',
  'from_address VARCHAR',
  'to_address VARCHAR',
  'value VARCHAR',
  'value_float DOUBLE',
  'nft_token_id VARCHAR',
  'is_fee BOOLEAN',
  'fee VARCHAR',
  'fee_unit VARCHAR',
  'execution_status VARCHAR',
  'finality VARCHAR',
  'price_usd DOUBLE',
]
  .map((column) => column.split(' '))
  .map(([name, type]) => `'${name}': '${type}'`)
  .join(', ');

function plain(row: Record<string, unknown>): FileRow {
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [name, plainValue(name, value)]));
}

/** Integers, booleans and text as text. No zod here: it takes a minute for four million values. */
function plainValue(name: string, value: unknown): string | number | null {
  if (value === null) return null;
  if (APPROXIMATE.includes(name)) return Number(value);
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean') return `${value}`;
  throw new TypeError(`${name} is of type ${typeof value}`);
}
