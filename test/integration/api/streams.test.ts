import { afterAll, beforeAll, expect, test } from 'vitest';

import { SESSION_AS_KEY } from '../../../api/http/route.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { indexedBlocks } from '../../../projections/indexed-blocks/projector.ts';
import { INDEXED_CHANNEL } from '../../../schemas/messages/chain-status.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { writeSmallChain } from '../../support/small-chain.ts';
import { readEvents } from '../../support/stream-client.ts';
import type { StreamMessage } from '../../support/stream-client.ts';
import { writeBlocks } from '../../support/transfer-world.ts';
import type { TableNames, WorldBlock } from '../../support/transfer-world.ts';

const blockAt = (height: number): WorldBlock => ({
  height,
  timestamp: 1_700_000_000 + height,
  chunk: 'live',
  transfers: [],
});

let world: ApiWorld;
let owner: ClickHouse;
let names: TableNames;
let apiKey: string;

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey, names } = await writeSmallChain(world, [40, 41].map(blockAt)));
  owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
});
afterAll(async () => {
  await owner?.close();
  await world?.close();
});

/** Opens a stream of events; `close` disconnects. */
async function open(url: string, headers: Record<string, string> = { 'api-key': apiKey }) {
  const cut = new AbortController();
  const response = await fetch(`${url}/api/stream/transfers/`, {
    headers: { ...headers, accept: 'text/event-stream' },
    signal: cut.signal,
  });
  return { response, close: () => cut.abort() };
}

test('a notification of new blocks wakes a stream', async () => {
  const { response, close } = await open(world.url);
  const messages = readEvents(response);
  const next = async (): Promise<StreamMessage | undefined> => (await messages.next()).value ?? undefined;
  const blocks = 10;
  let height = 41;
  /** Milliseconds for blocks of which each is written when the stream has sent the one before. */
  const sendBlocks = async (): Promise<number> => {
    const began = performance.now();
    for (let i = 0; i < blocks; i += 1) {
      height += 1;
      const version = { seq: height, offset: height };
      await writeBlocks(owner, [blockAt(height)], version, names, [indexedBlocks]);
      await world.pool.query('SELECT pg_notify($1, $2)', [INDEXED_CHANNEL, '']);
      let message = await next();
      while (message?.type === 'final') message = await next();
      expect(message).toMatchObject({ type: 'block', data: { height } });
    }
    return performance.now() - began;
  };
  // Polls alone, one a second, are never as fast; a busy machine is not always slow.
  const isFast = async (): Promise<boolean> => (await sendBlocks()) < (blocks - 1) * 1000;
  expect((await isFast()) || (await isFast()) || (await isFast())).toBe(true);
  close();
});

test('a key has as many streams as it may have, and so have all sessions of a user together', async () => {
  const api = await world.anotherApi({ env: { STREAMS_PER_KEY: '2' } });
  const streams = [await open(api.url), await open(api.url)];
  expect(streams.map(({ response }) => response.status)).toEqual([200, 200]);
  const refused = await api.call('GET', '/api/stream/transfers/?wait=0', { headers: { 'api-key': apiKey } });
  expect([refused.status, refused.json.code]).toEqual([429, 'throttled']);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);

  const username = 'streaming';
  const { token, password } = await world.makeUser(username);
  const { json: login } = await api.call('POST', '/api/users/auth/login/', { json: { username, password } });
  for (const [session, status] of [
    [token, 200],
    [login.token, 200],
    [token, 429],
  ]) {
    const stream = await open(api.url, { 'api-key': SESSION_AS_KEY, authorization: `Bearer ${session}` });
    expect(stream.response.status).toBe(status);
    streams.push(stream);
  }

  streams[0]?.close();
  await expect
    .poll(async () => {
      const { response, close } = await open(api.url);
      close();
      return response.status;
    })
    .toBe(200);
  for (const { close } of streams) close();
  await api.close();
});
