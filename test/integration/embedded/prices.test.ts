import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, expect, test, vi } from 'vitest';

import { coins } from '../../../infra/embedded/prices/coins.ts';
import { startPrices, tokenListUrl } from '../../../infra/embedded/prices/prices.ts';
import { markOf } from '../../../infra/embedded/processes.ts';
import type { EmbeddedService, ServiceLog } from '../../../infra/embedded/service.ts';
import { startChild } from '../../support/faults/orphan.ts';

/** The simulated feed as `npm start` runs it: a process of its own without state, which exits with its parent. */
const quiet: ServiceLog = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const dataDir = mkdtempSync(join(tmpdir(), 'prices-'));
let service: EmbeddedService | null = null;
afterAll(async () => {
  await service?.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

const read = async (url: string): Promise<{ status: number; json: unknown }> => {
  const response = await fetch(url);
  return { status: response.status, json: await response.json() };
};
const [eth] = coins.filter(({ token }) => token.key === 'eth');
const key = `starknet:${eth?.address}`;

test('the feed returns the same history after a kill, in the format and with the errors of the real API', async () => {
  service = await startPrices({ dataDir, log: quiet });
  const history = `/prices/historical/1790000000/${key},starknet:0xabc`;
  const before = await read(service.url + history);
  expect(before).toEqual({
    status: 200,
    json: {
      coins: {
        [key]: {
          decimals: 18,
          symbol: 'ETH',
          price: expect.any(Number),
          timestamp: expect.any(Number),
          confidence: 0.99,
        },
      },
    },
  });
  const port = Number(new URL(service.url).port);
  process.kill(service.pid, 'SIGKILL');
  await service.exited;
  service = await startPrices({ dataDir, log: quiet, port });
  expect(await read(service.url + history)).toEqual(before);

  const chart = await read(`${service.url}/chart/${key}?start=1790000000&span=3&period=1h`);
  expect(chart.json).toMatchObject({ coins: { [key]: { symbol: 'ETH', decimals: 18 } } });
  expect(await read(`${service.url}/chart/${key}?start=1&end=2`)).toEqual({
    status: 400,
    json: { message: 'use either start or end parameter, not both' },
  });
  expect((await read(`${service.url}/chart/${key}?span=501`)).status).toBe(400);
  expect((await read(`${service.url}/nothing`)).status).toBe(404);
  expect((await read(`${tokenListUrl(service.url)}?page=1&size=5`)).json).toMatchObject({
    content: coins.slice(5, 10).map(({ address, tags }) => ({ address, tags })),
    totalPages: Math.ceil(coins.length / 5),
    totalElements: coins.length,
    size: 5,
    number: 1,
  });
});

test('the feed exits when its parent is killed', async () => {
  const server = fileURLToPath(new URL('../../../infra/embedded/prices/server.ts', import.meta.url));
  const feed = await startChild([server]);
  expect(markOf(feed.pid)).not.toBeNull();
  feed.orphan();
  await vi.waitFor(() => expect(markOf(feed.pid)).toBeNull(), { timeout: 20_000 });
});
