import { once } from 'node:events';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { bulkRows, writeBulk } from '../../support/bulk-transfers.ts';
import type { Bulk } from '../../support/bulk-transfers.ts';
import {
  begin,
  fileOf,
  finish,
  firstDifference,
  formats,
  outcomeOf,
  rowsOf,
} from '../../support/export-client.ts';
import { writeSmallChain } from '../../support/small-chain.ts';
import { hashAt } from '../../support/transfer-world.ts';
import type { WorldBlock } from '../../support/transfer-world.ts';
import { startTestServer } from '../embedded/clickhouse-server.ts';
import type { TestServer } from '../embedded/clickhouse-server.ts';

/** Exports of an API whose ClickHouse, one of its own, is killed. */

const HEIGHTS = 110;
/** Accepted on L1 in the small chain's status. */
const L1 = 11;
const bulk: Bulk = { token: toFelt(0xb01cn), perBlock: 2000, below: HEIGHTS };
const blocks = Array.from({ length: HEIGHTS }, (_, height): WorldBlock => ({
  height,
  hash: hashAt(height),
  timestamp: 1_700_000_000 + height * 2,
  chunk: 'c0',
  transfers: [],
}));

let clickhouse: TestServer;
let world: ApiWorld;
let headers: Record<string, string>;

beforeAll(async () => {
  clickhouse = await startTestServer(2048);
  const { url, apiUrl } = clickhouse.service;
  world = await apiWorld({ CLICKHOUSE_URL: url, API_CLICKHOUSE_URL: apiUrl });
  const { apiKey, names } = await writeSmallChain(world, blocks);
  headers = { 'api-key': apiKey, te: 'trailers' };
  const owner = createClickHouse(url, { application: 'test' });
  await writeBulk(owner, names, bulk);
  await owner.close();
});
afterAll(async () => {
  await world?.close();
  await clickhouse?.stop();
});

test('exports of every format break off visibly when ClickHouse is killed, and work once it is back', async () => {
  // A process sends one export of a user at a time.
  const apis = await Promise.all(formats.map(async () => await world.anotherApi()));
  try {
    const begun = await Promise.all(
      formats.map(async (format, i) => {
        const url = `${apis[i]?.url}/api/export/transfers.${format}?token=${bulk.token}`;
        const answer = await begin(url, headers);
        expect(answer.statusCode, format).toBe(200);
        await once(answer, 'readable');
        return { format, answer, id: String(answer.headers['x-export-id']) };
      }),
    );
    await clickhouse.killAndRestart();
    const record = async (id: string) => await world.call('GET', `/api/export/${id}.json`, { headers });
    for (const { format, answer, id } of begun) {
      expect(await outcomeOf(answer), format).toBe('Error: aborted');
      expect(answer.trailers).toEqual({});
      const { json } = await record(id);
      expect(json).toMatchObject({ id, format, complete: false, rows: null, sha256: null, bytes: null });
    }
    const wanted = bulkRows({ ...bulk, below: 5 }, new Map(blocks.map((block) => [block.height, block])), L1);
    for (const [i, format] of formats.entries()) {
      const query = `token=${bulk.token}&to_block=4`;
      const answer = await finish(
        await begin(`${apis[i]?.url}/api/export/transfers.${format}?${query}`, headers),
      );
      expect([answer.status, answer.trailers['x-export-rows']]).toEqual([200, String(wanted.length)]);
      const { rows } = await rowsOf(format, fileOf(answer));
      expect(firstDifference(rows, wanted), format).toBe(null);
      expect((await record(String(answer.headers['x-export-id']))).json.complete).toBe(true);
    }
  } finally {
    await Promise.all(apis.map((api) => api.close()));
  }
});
