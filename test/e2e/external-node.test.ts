import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../infra/embedded/ports.ts';
import { createSimulatedNode } from '../support/starknet/node.ts';
import type { SimulatedNode } from '../support/starknet/node.ts';
import { createKafka } from '../../infra/kafka/client.ts';
import { createLogger } from '../../infra/log.ts';
import { topics } from '../../schemas/topics.ts';
import { isolated } from '../support/isolation.ts';
import type { Isolated } from '../support/isolation.ts';
import { startService } from '../support/service.ts';
import type { RunningService } from '../support/service.ts';
import { messagesOf } from '../support/topic.ts';

const ETH = '0x49d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7';
/** `npm start` beside a node, with neither PRICE_FEED_URL nor TOKEN_LIST_URL. */
let own: Isolated;
let node: SimulatedNode;
let service: RunningService;
/** Calls made with the API key. */
let calls = 0;
const dataDir = mkdtempSync(join(tmpdir(), 'tds-external-node-'));

beforeAll(async () => {
  own = await isolated();
  node = await createSimulatedNode({ seed: 'external', manual: true, initialHead: 20 });
  service = await startService(dataDir, {
    ...own.env,
    STARKNET_RPC_URL: node.url,
    INDEX_FROM: '0',
    PORT: String(await freePort()),
  });
});
afterAll(async () => {
  await service?.stop();
  await node?.close();
  await own?.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

test('npm start beside a node starts no simulated price feed or token list', async () => {
  expect(service.printed()).toMatch(/Prices +none: set PRICE_FEED_URL/);
  const run = z
    .object({ env: z.record(z.string(), z.string()), pids: z.record(z.string(), z.int()) })
    .parse(JSON.parse(readFileSync(join(dataDir, 'run.json'), 'utf8')));
  expect(Object.keys(run.env)).not.toContain('PRICE_FEED_URL');
  expect(Object.keys(run.env)).not.toContain('TOKEN_LIST_URL');
  expect(Object.keys(run.pids)).not.toContain('prices');
  const { json } = await get(`/api/price/?token_address=${ETH}`);
  expect(json).toMatchObject({ success: true, data: { price_usd: 0 } });
});

test('a request in flight when the service is stopped is answered, and its usage is in the log', async () => {
  // Without a price feed a forced refresh is answered after 8 s.
  const startedAt = performance.now();
  const answered = get(`/api/price/?token_address=${ETH}&force_refresh=true`);
  await sleep(500);
  const stopped = service.stop('SIGINT');
  const { status } = await answered;
  const elapsedMs = performance.now() - startedAt;
  await stopped;
  expect(status).toBe(200);
  expect(elapsedMs).toBeGreaterThan(7000);
  expect(await countedCalls()).toBe(calls);
});

async function get(path: string): ReturnType<RunningService['get']> {
  calls += 1;
  return await service.get(path);
}

/** Calls of API keys that the log holds. */
async function countedCalls(): Promise<number> {
  const kafka = createKafka({
    brokers: own.env.KAFKA_BROKERS.split(','),
    clientId: 'test',
    topicPrefix: own.env.KAFKA_TOPIC_PREFIX,
    log: createLogger('test', 'silent'),
  });
  try {
    let counted = 0;
    for (const { calls } of await messagesOf(kafka, topics.usage)) counted += calls;
    return counted;
  } finally {
    await kafka.close();
  }
}
