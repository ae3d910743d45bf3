import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { tokens } from '../../../infra/embedded/starknet/tokens.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { topics } from '../../../schemas/topics.ts';
import { inspector } from '../../support/faults/inspect.ts';
import type { Inspector } from '../../support/faults/inspect.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { startKafkaCluster } from '../../support/kafka-cluster.ts';
import type { KafkaCluster } from '../../support/kafka-cluster.ts';
import { createRandom } from '../../support/random.ts';
import { allTransfers, eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { hex, servedRow, trueRow } from '../../support/truth.ts';

/**
 * The whole service on three brokers that fail. `BROKER_ROUNDS` is how many rolling restarts there are during the backfill
 * and again at the head, and how many times 40 s of kills (3: three restarts, two minutes). `FAULT_SEED` decides targets.
 */
const rounds = Number(process.env['BROKER_ROUNDS'] ?? 1);
const seed = Number(process.env['FAULT_SEED'] ?? Date.now() % 1_000_000);
const random = createRandom(seed);

const KILLS_A_ROUND = 4;
const KILL_EVERY_MS = 10_000;
/** In three rounds it is longer than the time-out of a request to a broker (30 s). */
const OUTAGE_MS = 12_000 * rounds;
const HEAD = 1500;
const L1 = 1400;
const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';

const ready = z.object({
  status: z.string(),
  log: z.string(),
  halted: z.array(z.unknown()),
  roles: z.array(z.object({ name: z.string(), state: z.string() })),
});
const tokenList = z.object({ results: z.array(z.object({ address: z.string(), name: z.string() })) });
const session = z.object({ token: z.string() });
const keys = z.array(z.object({ id: z.number(), name: z.string() }));
const created = z.object({ id: z.number() });

let cluster: KafkaCluster;
let own: Isolated;
let node: SimulatedNode;
let service: RunningService;
let inspected: Inspector;
const dataDir = mkdtempSync(join(tmpdir(), 'tds-broker-faults-'));

beforeAll(async () => {
  [cluster, own] = await Promise.all([startKafkaCluster({ sessionMs: 9000 }), isolated()]);
  node = await createSimulatedNode({
    seed: `brokers ${seed}`,
    manual: true,
    initialHead: HEAD,
    transfersPerBlock: 8,
    malformed: 0.02,
    l1: null,
  });
  node.control({ command: 'setL1', height: L1 });
  // History is fetched slowly, and does not end before the faults are cleared.
  node.control({ command: 'fault', fault: { kind: 'latency', ms: 200 * rounds } });
  const last = { from: L1 - 1, to: L1 - 1 };
  node.control({ command: 'fault', fault: { kind: 'http503', heights: last } });
  const settings = {
    ...own.env,
    KAFKA_BROKERS: cluster.urls.join(','),
    STARKNET_RPC_URL: node.url,
    INDEX_FROM: '0',
    BACKFILL_CHUNK_BLOCKS: '400',
    RPC_CONCURRENCY: '2',
    PORT: String(await freePort()),
    LOG_LEVEL: 'warn',
  };
  service = await startService(dataDir, settings, { withinMs: 180_000 });
  inspected = inspector(node, settings);
});
afterAll(async () => {
  await inspected?.close();
  await service?.stop();
  await node?.close();
  await cluster?.stop();
  await own?.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

/** What each role wrote that is worse than a warning, to find out why one ended. */
function errorsInLogs(): string {
  const logs = join(dataDir, 'logs');
  return readdirSync(logs)
    .flatMap((name) =>
      readFileSync(join(logs, name), 'utf8')
        .split('\n')
        .filter((line) => line !== '' && !/^\{"level":[1-4]0,/.test(line))
        .map((line) => `${name}: ${line}`),
    )
    .join('\n');
}

/** Runs `faults` while leaders move every second; returns the reads that failed meanwhile. */
async function underFaults(faults: () => Promise<void>): Promise<string[]> {
  const failures: string[] = [];
  const ended = new AbortController();
  const repeat = async (work: () => Promise<unknown>): Promise<void> => {
    for (; !ended.signal.aborted; await sleep(1000, ended.signal)) await work();
  };
  const prefix = own.env.KAFKA_TOPIC_PREFIX;
  const names = [...Object.values(topics).map(({ name }) => prefix + name), '__consumer_offsets'];
  const moveLeaders = repeat(() =>
    // Refused while no controller is elected.
    cluster.preferOtherLeaders(random.pick(names)).catch(() => {}),
  );
  const read = repeat(async () => {
    for (const path of ['/readyz', `/api/transfers/?token=${STRK}&limit=5`]) {
      const { status, json } = await service.get(path);
      if (status !== 200) failures.push(`${path}: ${status} ${JSON.stringify(json)}`);
    }
  });
  try {
    await faults();
  } finally {
    ended.abort();
    await Promise.all([moveLeaders, read]);
  }
  return failures;
}

/** As an operator does it: the next broker when all replicas are in sync again. */
async function restartAll(): Promise<void> {
  for (const broker of cluster.brokers) {
    await broker.stop();
    await broker.start();
    await untilInSync();
  }
}

const untilInSync = (): Promise<void> =>
  eventually(async () => expect(await cluster.isInSync()).toBe(true), 120_000, 500);

/** One dies every ten seconds, and is started again at once; later while none of the three is back. */
async function killAtRandom(times: number): Promise<void> {
  const starting = new Map<string, Promise<void>>();
  for (let i = 0; i < times; i += 1) {
    if (starting.size === cluster.brokers.length) await Promise.race(starting.values());
    const broker = random.pick(cluster.brokers.filter(({ url }) => !starting.has(url)));
    await broker.kill();
    starting.set(
      broker.url,
      broker.start().finally(() => starting.delete(broker.url)),
    );
    await sleep(KILL_EVERY_MS);
  }
  await Promise.all(starting.values());
}

async function expectReady(): Promise<void> {
  await eventually(async () => {
    const { status, json } = await service.get('/readyz');
    expect(status).toBe(200);
    const { roles, ...rest } = ready.parse(json);
    expect(rest).toEqual({ status: 'ready', log: 'ok', halted: [] });
    expect(roles.filter(({ state }) => state !== 'working')).toEqual([]);
  });
}

/** Log, tables and what is served are the node's chain. */
async function expectEqualToChain(): Promise<void> {
  await eventually(async () => expect(await inspected.isSettled().catch(String)).toBe(true), 180_000, 500);
  expect(await inspected.differences()).toEqual([]);
  for (const height of [3, 700, node.ledger.head()]) {
    const { rows, count } = await allTransfers(service, `block=${height}&order=asc`);
    expect(rows.map(servedRow)).toEqual(node.transfersAt(height).map(trueRow));
    expect(count).toBe(rows.length);
  }
}

/** Names that the contracts of the chain give, of those that have one without control characters. */
function trueNames(): Map<string, string> {
  const seen = new Set<bigint>();
  for (let height = 0; height <= node.ledger.head(); height += 1)
    for (const { token } of node.transfersAt(height)) seen.add(token);
  return new Map(
    tokens.flatMap(({ address, name, answers, standard }) => {
      if (!seen.has(address) || answers !== 'standard' || standard === 'unknown' || name.as === 'revert')
        return [];
      const text = name.bytes.toString();
      return /[\p{Cc}\ufffd]/u.test(text) ? [] : [[hex(address), text]];
    }),
  );
}

const isBackfilling = async (): Promise<boolean> => {
  const { rows } = await inspected.pool.query(
    "SELECT 1 FROM tds.chunks WHERE name <> 'live' AND status <> 'finished'",
  );
  return rows.length > 0;
};

test(
  `nothing is lost while brokers restart, die and lose their leaders (${rounds} rounds, FAULT_SEED=${seed})`,
  { timeout: 400_000 + rounds * 400_000 },
  async ({ annotate }) => {
    const pids = service.pids();
    const backfillFailures = await underFaults(async () => {
      for (let round = 0; round < rounds; round += 1) await restartAll();
      expect(await isBackfilling()).toBe(true);
    });
    node.control({ command: 'clearFaults' });

    const ended = new AbortController();
    const growing = (async () => {
      for (; !ended.signal.aborted; await sleep(1000, ended.signal)) {
        if (random.below(8) > 0) node.control({ command: 'advance', blocks: 1 });
        else node.control({ command: 'reorg', depth: 1 + random.below(4), length: 1 + random.below(6) });
      }
    })();
    const headFailures = await underFaults(async () => {
      for (let round = 0; round < rounds; round += 1) await restartAll();
      await killAtRandom(KILLS_A_ROUND * rounds);
    }).finally(() => ended.abort());
    await growing;

    const from = performance.now();
    await expectReady();
    await annotate(`ready after ${Math.round(performance.now() - from)} ms`);
    await untilInSync();
    await expectEqualToChain();
    const names = trueNames();
    expect(names.size).toBeGreaterThan(15);
    await eventually(async () => {
      const { results } = tokenList.parse((await service.get('/api/tokens/?limit=100')).json);
      const found = new Map(results.map(({ address, name }) => [address, name]));
      expect(new Map([...names].map(([address]) => [address, found.get(address)]))).toEqual(names);
    });
    expect([...backfillFailures, ...headFailures]).toEqual([]);
    // Each role has survived by itself.
    expect(service.pids(), errorsInLogs()).toEqual(pids);
  },
);

test.each(['stop', 'kill'] as const)(
  'writes answer 503 while two of three brokers are away by %s, and nothing acknowledged is lost',
  async (end) => {
    const { username, password } = service.demo;
    const call = async (method: string, path: string, token: string | null, body: unknown, key = '') => {
      const startedAt = performance.now();
      const response = await fetch(service.baseUrl + path, {
        method,
        headers: {
          'content-type': 'application/json',
          ...(token === null ? {} : { authorization: `Bearer ${token}` }),
          ...(key === '' ? {} : { 'idempotency-key': key }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const json: unknown = await response.json();
      return { status: response.status, json, ms: performance.now() - startedAt };
    };
    const login = await call('POST', '/api/users/auth/login/', null, { username, password });
    const { token } = session.parse(login.json);
    const create = (name: string) =>
      call('POST', '/api/users/auth/create-api-key/', token, { name }, `${end} ${name}`);
    node.control({ command: 'clearFaults' });
    const acknowledged = new Map<string, number>();
    for (let i = 0; i < 5; i += 1) {
      const name = `${end} before ${i}`;
      const { status, json } = await create(name);
      expect(status).toBe(201);
      acknowledged.set(name, created.parse(json).id);
    }
    node.control({ command: 'advance', blocks: 3 });
    const head = node.ledger.head();
    const shown = async () => await allTransfers(service, `block=${head}&order=asc`);
    await eventually(async () => expect((await shown()).count).toBe(node.transfersAt(head).length));
    const before = await shown();

    const survivor = random.pick(cluster.brokers);
    const gone = cluster.brokers.filter((broker) => broker !== survivor);
    await Promise.all(gone.map((broker) => broker[end]()));
    const refused: string[] = [];
    const startedAt = performance.now();
    while (performance.now() - startedAt < OUTAGE_MS) {
      const name = `${end} during ${refused.length}`;
      const { status, json, ms } = await create(name);
      expect({ status, json, isLate: ms > 15_000 }).toMatchObject({ status: 503, isLate: false });
      refused.push(name);
      node.control({ command: 'advance', blocks: 1 });
      expect(await shown()).toEqual(before);
      expect((await call('GET', '/api/users/auth/api-keys/', token, undefined)).status).toBe(200);
      expect((await service.get('/readyz')).status).toBe(200);
    }
    expect(refused.length).toBeGreaterThan(0);

    await Promise.all(gone.map((broker) => broker.start()));
    // The same request, repeated, is decided once.
    for (const name of refused) {
      const { json } = await eventually(async () => {
        const answer = await create(name);
        expect(answer.status).toBe(201);
        return answer;
      });
      acknowledged.set(name, created.parse(json).id);
    }
    await expectReady();
    const { json } = await call('GET', '/api/users/auth/api-keys/', token, undefined);
    const found = keys.parse(json).filter(({ name }) => name.startsWith(`${end} `));
    expect(new Map(found.map(({ id, name }) => [name, id]))).toEqual(acknowledged);
    expect(found.length).toBe(acknowledged.size);
    expect(await shown()).toEqual(before);
    await untilInSync();
    await expectEqualToChain();
  },
  300_000 + rounds * 60_000,
);
