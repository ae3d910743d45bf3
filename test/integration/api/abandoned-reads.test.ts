import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Transfer } from '../../../schemas/decode/index.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { writeSmallChain } from '../../support/small-chain.ts';
import { aTransfer } from '../../support/transfer-world.ts';

/**
 * Reads whose client has gone. ClickHouse sleeps for each row that the API reads of a large table, so that a read takes many
 * seconds unless it is cancelled.
 */

const [HOT, HOARDER, COIN] = [toFelt(0x407n), toFelt(0x40a4d34n), toFelt(0xc01n)];
const BLOCKS = 200;
const PER_BLOCK = 500;
const LARGE_ROWS = 20_000;
const BLOCK_ROWS = 512;
/**
 * ClickHouse sees between two blocks of rows that a read is cancelled. Blocks that it has merged or sorted are larger than
 * asked for: those of transfers up to the whole answer.
 */
const sleepSeconds = (table: string): number => (table.startsWith('transfers_') ? 0.00004 : 0.0001);
/** A read that has run so long sleeps. */
const SLOW_SECONDS = 0.5;
/** More than a cancelled read needs, far less than a whole one. */
const CANCELLED_MS = 3000;

const transferAt = (height: number, position: number): Transfer => {
  const index = BigInt(height * PER_BLOCK + position);
  const about = { from: HOT, position, txHash: toFelt(index + 1n) };
  return position % 2 === 0
    ? aTransfer({ ...about, token: COIN, to: toFelt(0xacc_0000n + index) })
    : aTransfer({ ...about, token: toFelt(0x70c_0000n + index), to: HOARDER });
};

let world: ApiWorld;
let owner: ClickHouse;
let slow: { readonly url: string };
let apiKey: string;

beforeAll(async () => {
  world = await apiWorld();
  const chain = Array.from({ length: BLOCKS }, (_, height) => ({
    height,
    timestamp: 1_700_000_000 + height,
    chunk: 'blocks-0',
    transfers: Array.from({ length: PER_BLOCK }, (__, position) => transferAt(height, position)),
  }));
  ({ apiKey } = await writeSmallChain(world, chain));
  owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const url = new URL(world.env['API_CLICKHOUSE_URL'] ?? '');
  const filters = (await largeTables()).map((name) => `'${name}': 'sleepEachRow(${sleepSeconds(name)}) = 0'`);
  url.searchParams.set('ch_additional_table_filters', `{${filters.join(', ')}}`);
  url.searchParams.set('ch_max_block_size', String(BLOCK_ROWS));
  slow = await world.anotherApi({ env: { API_CLICKHOUSE_URL: url.href } });
});
afterAll(async () => {
  await owner?.close();
  await world?.close();
});

const largeTables = async (): Promise<readonly string[]> => {
  const sql = `SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > ${LARGE_ROWS}`;
  const rows = await owner.rows({ name: 'test.tables', sql, row: z.object({ name: z.string() }) });
  return rows.map(({ name }) => name);
};

const running = async (): Promise<readonly string[]> => {
  const { username } = new URL(world.env['API_CLICKHOUSE_URL'] ?? '');
  const sql = `SELECT query FROM system.processes
    WHERE current_database = currentDatabase() AND user = '${username}' AND elapsed > ${SLOW_SECONDS}`;
  const rows = await owner.rows({ name: 'test.running', sql, row: z.object({ query: z.string() }) });
  return rows.map(({ query }) => query);
};

test.each([
  ['a deep page of an account', `/api/transfers/?account=${HOT}&token=${COIN}&order=asc&page=20`],
  ['transfers between two accounts', `/api/transfers/?from_account=${HOT}&to_account=${HOARDER}`],
  ['transfers within blocks', `/api/transfers/?account=${HOARDER}&from_block=2&to_block=9`],
  ['a trace', `/api/track-transfers/?account=${HOT}&token=${COIN}`],
  ['all balances of an account', `/api/account-balances/?account_address=${HOARDER}`],
  ['a portfolio', `/api/portfolio/?account_address=${HOARDER}`],
  [
    'a portfolio over time',
    `/api/portfolio-history/?account_address=${HOARDER}&start_time=2023-11-14T22:13:20Z`,
  ],
])('%s: no query outlives its client', async (_, path) => {
  const client = new AbortController();
  const answer = fetch(slow.url + path, { headers: { 'api-key': apiKey }, signal: client.signal }).then(
    async (response) => `${response.status} ${await response.text()}`,
    () => 'left',
  );
  await vi.waitFor(async () => expect(await running()).not.toEqual([]), { timeout: 5000 });
  client.abort();
  expect(await answer).toBe('left');
  await vi.waitFor(async () => expect(await running()).toEqual([]), { timeout: CANCELLED_MS });
});
