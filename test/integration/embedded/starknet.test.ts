import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { afterEach, beforeEach, expect, test } from 'vitest';

import { startStarknet } from '../../../infra/embedded/starknet/starknet.ts';
import type { EmbeddedService, ServiceLog } from '../../../infra/embedded/service.ts';
import { markOf } from '../../../infra/embedded/processes.ts';

/** The simulated node as the demo starts it: a process of its own that resumes its chain and never outlives its parent. */
const quiet: ServiceLog = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const args = ['--head', '40', '--interval-ms', '50', '--reorg-every', '8', '--control'];

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
    if (Date.now() > deadline) throw new Error('it did not come about');
    await pause(25);
  }
}

test.each(['SIGTERM', 'SIGKILL'] as const)(
  'after %s a restart goes on with the same chain',
  async (signal) => {
    const first = await start();
    await until(async () => (await rpc(first.url, 'starknet_blockNumber')) >= 60);
    const hashAt = async (url: string, height: number) =>
      (await rpc(url, 'starknet_getBlockWithTxHashes', [{ block_number: height }])).block_hash;
    await fetch(`${first.url}/control`, { method: 'POST', body: '{"command":"pause"}' });
    const before = JSON.parse(await (await fetch(`${first.url}/control`)).text());
    const heights = [0, 39, 45, 50, before.head];
    const hashes = await Promise.all(heights.map((height) => hashAt(first.url, height)));
    process.kill(first.pid, signal);
    await first.exited;

    const second = await start('--manual');
    expect(before.forks.length).toBeGreaterThan(1);
    expect(JSON.parse(await (await fetch(`${second.url}/control`)).text())).toEqual(before);
    expect(await Promise.all(heights.map((height) => hashAt(second.url, height)))).toEqual(hashes);
  },
);

test('it ends when its parent is killed', async () => {
  const server = fileURLToPath(new URL('../../../infra/embedded/starknet/server.ts', import.meta.url));
  // A parent that does nothing but have the node as its child, and no pipe between them.
  const script = `const c = require('node:child_process').spawn(process.execPath, [${JSON.stringify(server)}, '--manual'], { stdio: ['ignore', 'inherit', 'inherit'] }); setInterval(() => {}, 1000);`;
  const parent = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const line = await new Promise<string>((resolve) =>
    parent.stdout.once('data', (data: Buffer) => resolve(data.toString())),
  );
  const { pid, url } = JSON.parse(line);
  expect(await rpc(url, 'starknet_blockNumber')).toBe(300);
  parent.kill('SIGKILL');
  await until(() => markOf(pid) === null);
});
