import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';

import { startStarknet } from '../../../infra/embedded/starknet/starknet.ts';
import type { EmbeddedService, ServiceLog } from '../../../infra/embedded/service.ts';
import { markOf } from '../../../infra/embedded/processes.ts';
import { startChild } from '../../support/faults/orphan.ts';

/** The simulated node as `npm start` runs it: a process of its own that resumes its chain and exits with its parent. */
const quiet: ServiceLog = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const args = ['--head', '40', '--reorg-every', '8'];

let dataDir: string;
const started: EmbeddedService[] = [];
beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'starknet-'));
});
afterEach(async () => {
  await Promise.all(started.splice(0).map((service) => service.stop()));
  rmSync(dataDir, { recursive: true, force: true });
});

async function start(...more: string[]): Promise<EmbeddedService> {
  const service = await startStarknet({ dataDir, log: quiet, args: [...args, ...more] });
  started.push(service);
  return service;
}

async function rpc(url: string, method: string, params: unknown[] = []) {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
  return JSON.parse(await (await fetch(url, { method: 'POST', body })).text()).result;
}

async function until(check: () => Promise<boolean> | boolean): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!(await check())) {
    if (Date.now() > deadline) throw new Error('timed out');
    await sleep(25);
  }
}

const storedChain = () =>
  z
    .object({
      head: z.number(),
      fork: z.number(),
      l1: z.number(),
      forks: z.array(z.object({ from: z.number() })),
    })
    .parse(JSON.parse(readFileSync(join(dataDir, 'chain.json'), 'utf8')));

test.each(['SIGTERM', 'SIGKILL'] as const)('a restart after %s resumes the same chain', async (signal) => {
  const first = await start('--interval-ms', '50');
  await until(async () => (await rpc(first.url, 'starknet_blockNumber')) >= 60);
  const hashAt = async (url: string, height: number) =>
    (await rpc(url, 'starknet_getBlockWithTxHashes', [{ block_number: height }])).block_hash;
  const { forks } = storedChain();
  const top = await rpc(first.url, 'starknet_blockHashAndNumber');
  const served = await Promise.all(
    [0, 39, 45, 50].map(async (height) => [height, await hashAt(first.url, height)]),
  );
  process.kill(first.pid, signal);
  await first.exited;

  const stored = storedChain();
  expect(stored.forks.length).toBeGreaterThan(1);
  // Unless the first process reorganised its head after it was asked for it.
  if (stored.forks.length === forks.length) served.push([top.block_number, top.block_hash]);
  const second = await start('--interval-ms', '3600000');
  expect(await rpc(second.url, 'starknet_blockNumber')).toBe(stored.head);
  for (const [height, hash] of served)
    expect([height, await hashAt(second.url, height)]).toEqual([height, hash]);
  expect(storedChain()).toEqual(stored);
});

test('the node exits when its parent is killed', async () => {
  const server = fileURLToPath(new URL('../../../infra/embedded/starknet/server.ts', import.meta.url));
  const node = await startChild([server, '--interval-ms', '3600000']);
  expect(await rpc(node.url, 'starknet_blockNumber')).toBe(300);
  node.orphan();
  await until(() => markOf(node.pid) === null);
});

test('a folder of another simulated chain is refused in one sentence', async () => {
  await (await start()).stop();
  const file = join(dataDir, 'chain.json').replaceAll('.', '\\.');
  const sentence = `did not start: it exited with code 1\\. Its last output:\n  ${file} belongs to another chain .*: use another folder, .*$`;
  await expect(start('--seed', 'other')).rejects.toThrow(new RegExp(sentence));
});
