/**
 * Exports the transfers of a token to a Parquet file and asks DuckDB who received most: `node duckdb.ts 0xTOKEN`. Needs the
 * npm package `@duckdb/node-api`.
 */
import { createWriteStream, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

import { DuckDBInstance } from '@duckdb/node-api';

const { TDS_URL = 'http://127.0.0.1:8080', TDS_KEY = '' } = process.env;
const [token = ''] = process.argv.slice(2);
const answer = await fetch(`${TDS_URL}/api/export/transfers.parquet?token=${token}`, {
  headers: { 'api-key': TDS_KEY },
});
if (!answer.ok || answer.body === null) throw new Error(await answer.text());
const file = join(mkdtempSync(join(tmpdir(), 'transfers-')), 'transfers.parquet');
await pipeline(Readable.fromWeb(answer.body), createWriteStream(file));

const db = await (await DuckDBInstance.create()).connect();
const reader = await db.runAndReadAll(`
  SELECT to_address, count(*) AS transfers, sum(value_float) AS received
  FROM '${file}' WHERE NOT is_fee GROUP BY ALL ORDER BY received DESC, to_address LIMIT 10`);
for (const row of reader.getRowObjectsJson()) console.log(JSON.stringify(row));
