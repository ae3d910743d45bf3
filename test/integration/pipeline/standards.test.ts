import { setTimeout } from 'node:timers/promises';

import { Registry } from 'prom-client';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';

import type { Fault } from '../../support/starknet/faults.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { tokens } from '../../../infra/embedded/starknet/tokens.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { ClassifyingNode } from '../../../pipeline/ingest/contracts/classify.ts';
import {
  STANDARDS_TTL_MS,
  createStandards,
  setStandard,
} from '../../../pipeline/ingest/contracts/standards.ts';
import { createNodeMetrics } from '../../../pipeline/node/metrics.ts';
import { createNode } from '../../../pipeline/node/node.ts';
import type { BlockPoint, Node } from '../../../pipeline/node/types.ts';
import { AppError, isRetryable } from '../../../schemas/errors.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { isolatedPool } from '../../support/isolated-pool.ts';

const log = pino({ level: 'silent' });
const all = tokens.map(({ address }) => toFelt(address));
const truth = new Map(tokens.map(({ address, standard }) => [toFelt(address), standard]));
const meant = new Map<string, string>(truth);
/** Below the head, so that `latest` is a different state. */
const HEIGHT = 100;

let pool: Pool;
let simulated: SimulatedNode;
let node: Node;
let at: BlockPoint;

beforeAll(async () => {
  pool = await isolatedPool();
  simulated = await createSimulatedNode({ manual: true, initialHead: 120 });
  node = createNode({
    url: simulated.url,
    timeoutMs: 2000,
    maxConcurrent: 8,
    attempts: 1,
    metrics: createNodeMetrics(new Registry()),
  });
  const { height, hash } = await node.getBlockHeader(HEIGHT);
  at = { height, hash };
});
afterAll(async () => {
  await node.close();
  await simulated.close();
  await pool.end();
});
beforeEach(() => pool.query('TRUNCATE tds.contract_standards, tds.alarms'));
afterEach(() => simulated.faults.clear());

const open = (over: ClassifyingNode = node, now = Date.now) =>
  createStandards({ node: over, pool, log, now });

/** Counts the calls to the node. */
function counted(): { node: ClassifyingNode; calls: () => number } {
  let calls = 0;
  const count = <A extends unknown[], R>(question: (...args: A) => R) => {
    return (...args: A): R => {
      calls += 1;
      return question(...args);
    };
  };
  return {
    node: {
      call: count((...args) => node.call(...args)),
      getClassAt: count((...args) => node.getClassAt(...args)),
      getClassHashAt: count((...args) => node.getClassHashAt(...args)),
    },
    calls: () => calls,
  };
}

const standardsOf = (facts: ReadonlyMap<string, { standard: string }>) =>
  new Map([...facts].map(([contract, { standard }]) => [contract, standard]));

test('resolve classifies every simulated token, and stores it for other processes', async () => {
  const found = await open().resolve(all, at);
  expect(standardsOf(found)).toEqual(truth);
  const { node: other, calls } = counted();
  expect(await open(other).resolve(all, at)).toEqual(found);
  expect(calls()).toBe(0);
});

test('resolve looks a contract up once for concurrent callers', async () => {
  const { node: once, calls } = counted();
  await open(once).resolve(all, at);
  const needed = calls();
  await pool.query('TRUNCATE tds.contract_standards');
  const { node: many, calls: asked } = counted();
  const standards = open(many);
  const answers = await Promise.all(
    Array.from({ length: 10 }, () => standards.resolve([...all, ...all], at)),
  );
  expect(asked()).toBe(needed);
  for (const answer of answers) expect(standardsOf(answer)).toEqual(truth);
});

test('resolve looks contracts of higher priority up before those that wait', async () => {
  const asked: [contract: string, priority: number | undefined][] = [];
  const blocked = Promise.withResolvers<void>();
  const standards = open({
    ...node,
    getClassHashAt: async (contract, id, options) => {
      if (!asked.some(([other]) => other === contract)) asked.push([contract, options?.priority]);
      await blocked.promise;
      return await node.getClassHashAt(contract, id, options);
    },
  });
  const unknown = Array.from({ length: 40 }, (_, i) => toFelt(0xdead_0000n + BigInt(i)));
  const [head] = all;
  const waiting = standards.resolve(unknown, at);
  await vi.waitFor(() => expect(asked.length).toBeGreaterThan(0));
  await setTimeout(100);
  const running = asked.length;
  const first = standards.resolve([head!], at, { priority: 1 });
  await setTimeout(100);
  blocked.resolve();
  await Promise.all([waiting, first]);
  expect(running).toBeLessThan(unknown.length);
  expect(asked[running]).toEqual([head, 1]);
});

test('resolve gives the same answer to two processes at once', async () => {
  const [mine, yours] = await Promise.all([open().resolve(all, at), open().resolve(all, at)]);
  expect(mine).toEqual(yours);
});

test.each<Fault>([
  { kind: 'error', code: -32603, methods: ['starknet_getClassAt'] },
  { kind: 'error', code: -32603, methods: ['starknet_call'], times: 1 },
  { kind: 'http429', retryAfter: 0, methods: ['starknet_getClassHashAt'], times: 1 },
  { kind: 'http503' },
  { kind: 'truncated', methods: ['starknet_call'] },
])('resolve throws a retryable error if the node fails ($kind), and stores nothing', async (fault) => {
  simulated.faults.add(fault);
  const standards = open();
  const outcome = await standards.resolve(all, at).catch((error: unknown) => error);
  expect(isRetryable(outcome)).toBe(true);
  const { rows } = await pool.query<{ contract: string; standard: string }>(
    'SELECT contract, standard FROM tds.contract_standards',
  );
  expect(rows.filter(({ contract, standard }) => standard !== meant.get(contract))).toEqual([]);
  simulated.faults.clear();
  expect(standardsOf(await standards.resolve(all, at))).toEqual(truth);
});

test('resolve reads the newest state if the node has pruned that of the block', async () => {
  simulated.faults.add({ kind: 'error', code: 24, heights: { from: 0, to: HEIGHT } });
  expect(standardsOf(await open().resolve(all, at))).toEqual(truth);
});

test('resolve classifies an address without a contract as unknown, without a class', async () => {
  const nobody = toFelt(0xdeadn);
  expect(await open().resolve([nobody], at)).toEqual(
    new Map([[nobody, { standard: 'unknown', class_hash: null }]]),
  );
});

test('reclassify reaches other processes within STANDARDS_TTL_MS', async () => {
  const [contract = toFelt(0n)] = all;
  let now = 1_000_000;
  await pool.query(
    `INSERT INTO tds.contract_standards (contract, standard, basis, block) VALUES ($1, 'unknown', 'nothing', 1)`,
    [contract],
  );
  const ingester = open(node, () => now);
  expect(standardsOf(await ingester.resolve([contract], at)).get(contract)).toBe('unknown');
  const { before, after } = await open().reclassify(contract, at);
  expect([before?.standard, after.standard]).toEqual(['unknown', 'erc20']);
  now += STANDARDS_TTL_MS - 1;
  expect(standardsOf(await ingester.resolve([contract], at)).get(contract)).toBe('unknown');
  now += 1;
  expect(standardsOf(await ingester.resolve([contract], at)).get(contract)).toBe('erc20');

  await pool.query("UPDATE tds.contract_standards SET standard = 'erc721' WHERE contract = $1", [contract]);
  // The clock is set back.
  now -= 3_600_000;
  expect(standardsOf(await ingester.resolve([contract], at)).get(contract)).toBe('erc721');
});

test('resolve goes on with a standard that was set by hand while the node fails for the contract', async () => {
  const [contract = toFelt(0n)] = all;
  const isRefused = { current: true };
  const refuseOne = <A extends unknown[], R>(method: (...args: A) => Promise<R>) => {
    return async (...args: A): Promise<R> => {
      if (isRefused.current && JSON.stringify(args).includes(contract))
        throw new AppError('NODE_ERROR', 'no answer about this contract', { retryable: true });
      return await method(...args);
    };
  };
  const refusing: ClassifyingNode = {
    call: refuseOne((...args: Parameters<Node['call']>) => node.call(...args)),
    getClassAt: refuseOne((...args: Parameters<Node['getClassAt']>) => node.getClassAt(...args)),
    getClassHashAt: refuseOne((...args: Parameters<Node['getClassHashAt']>) => node.getClassHashAt(...args)),
  };
  const ingester = open(refusing);
  const alarms = async (): Promise<unknown[]> =>
    (await pool.query('SELECT name, detail FROM tds.alarms')).rows;
  for (let attempt = 0; attempt < 5; attempt += 1) {
    expect(await alarms()).toEqual([]);
    await expect(ingester.resolve(all, at)).rejects.toThrow('no answer about this contract');
  }
  const detail = expect.stringContaining(`tds contracts set ${contract} STANDARD`);
  expect(await alarms()).toEqual([{ name: `contract.unclassified:${contract}`, detail }]);
  const { before, after } = await setStandard({ pool, log }, contract, 'erc721', at);
  expect([before, after]).toEqual([null, { standard: 'erc721', class_hash: null }]);
  // The same process, and one that was started later.
  for (const standards of [ingester, open(refusing)]) {
    const found = standardsOf(await standards.resolve(all, at));
    expect(found).toEqual(new Map([...truth, [contract, 'erc721']]));
  }
  expect(await alarms()).toEqual([]);
  const { rows } = await pool.query('SELECT basis FROM tds.contract_standards WHERE contract = $1', [
    contract,
  ]);
  expect(rows).toEqual([{ basis: 'operator' }]);

  // An alarm is cleared by an answer of the node as well, also in a process that has not raised it.
  await pool.query('DELETE FROM tds.contract_standards WHERE contract = $1', [contract]);
  const other = open(refusing);
  for (let attempt = 0; attempt < 5; attempt += 1)
    await expect(other.resolve([contract], at)).rejects.toThrow();
  expect(await alarms()).toHaveLength(1);
  isRefused.current = false;
  await open(refusing).resolve([contract], at);
  expect(await alarms()).toEqual([]);
  expect((await open(refusing).reclassify(contract, at)).after.standard).toBe(truth.get(contract));
});
