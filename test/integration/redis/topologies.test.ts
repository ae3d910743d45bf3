import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Redis } from 'ioredis';
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';

import { freePort } from '../../../infra/embedded/ports.ts';
import { defineScript, openCounters } from '../../../infra/redis/client.ts';
import { retry } from '../../../infra/retry.ts';

const OFTEN = { isRetryable: () => true, maxMs: 200 };
const increment = defineScript("return redis.call('INCR', KEYS[1])");

let folder: string;
const servers: ChildProcess[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tds-redis-'));
});
afterEach(async () => {
  for (const server of servers.splice(0)) {
    if (server.exitCode !== null || server.signalCode !== null) continue;
    server.kill('SIGKILL');
    await once(server, 'exit');
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Starts a Redis with these lines of configuration; resolves when it answers. */
async function startRedis(lines: readonly string[], args: readonly string[] = []) {
  const port = await freePort();
  const file = join(folder, `${port}.conf`);
  const common = [`port ${port}`, 'bind 127.0.0.1', `dir ${folder}`, 'save ""'];
  writeFileSync(file, [...common, `dbfilename ${port}.rdb`, ...lines, ''].join('\n'));
  const child = spawn('redis-server', [file, ...args], { stdio: 'ignore' });
  servers.push(child);
  const client = new Redis(port, '127.0.0.1', { retryStrategy: () => 50 });
  client.on('error', () => {});
  await retry(() => client.ping(), { ...OFTEN, deadlineMs: 10_000 });
  return { port, child, client };
}

const open = (url: string, warnings: unknown[]) =>
  openCounters(url, {
    keyPrefix: 'test:',
    timeoutMs: 1000,
    log: pino({ level: 'warn' }, { write: (line: string) => void warnings.push(JSON.parse(line)) }),
  });

test('counts on the master that the Sentinels name, also after it is killed', async () => {
  const master = await startRedis(['repl-diskless-sync-delay 0']);
  const replica = await startRedis([`replicaof 127.0.0.1 ${master.port}`]);
  const sentinel = await startRedis(
    [
      `sentinel monitor main 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds main 1000',
      'sentinel failover-timeout main 5000',
    ],
    ['--sentinel'],
  );
  await retry(
    async () => {
      const [found] = (await sentinel.client.call('SENTINEL', 'REPLICAS', 'main')) as unknown[];
      if (found === undefined) throw new Error('the Sentinel has not found the replica yet');
    },
    { ...OFTEN, deadlineMs: 30_000 },
  );
  const counters = open(`redis+sentinel://127.0.0.1:${sentinel.port}/main`, []);
  await counters.settled(5000);
  expect(await counters.run(increment, ['a'], [])).toBe(1);
  await retry(
    async () => {
      if ((await replica.client.get('test:a')) !== '1') throw new Error('not replicated yet');
    },
    { ...OFTEN, deadlineMs: 10_000 },
  );

  master.child.kill('SIGKILL');
  const next = await retry(() => counters.run(increment, ['a'], []), {
    isRetryable: () => true,
    deadlineMs: 60_000,
  });
  // An attempt whose answer was lost may have counted too.
  expect(Number(next)).toBeGreaterThanOrEqual(2);
  expect(await replica.client.get('test:a')).toBe(String(next));
  counters.close();
  for (const { client } of [master, replica, sentinel]) client.disconnect();
});

test('counts on the new master while the demoted one, at the same address before, keeps its connections', async () => {
  const [old, next] = [await startRedis([]), await startRedis([])];
  let target = old.port;
  const address = createServer((client) => {
    const server = connect(target, '127.0.0.1');
    client.pipe(server).pipe(client);
    for (const socket of [client, server]) socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => address.listen(0, '127.0.0.1', resolve));
  const counters = open(`redis://127.0.0.1:${(address.address() as AddressInfo).port}`, []);
  await counters.settled(5000);
  expect(await counters.run(increment, ['a'], [])).toBe(1);

  target = next.port;
  await old.client.call('REPLICAOF', '127.0.0.1', next.port);
  await expect(counters.run(increment, ['a'], [])).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
  await retry(() => counters.run(increment, ['b'], []), { ...OFTEN, deadlineMs: 10_000 });
  expect(await next.client.get('test:b')).toBe('1');
  counters.close();
  address.close();
  for (const { client } of [old, next]) client.disconnect();
});

test('a Redis Cluster is refused with a sentence', async () => {
  const node = await startRedis([
    'cluster-enabled yes',
    'cluster-config-file nodes.conf',
    `cluster-port ${await freePort()}`,
  ]);
  await node.client.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  const warnings: unknown[] = [];
  const counters = open(`redis://127.0.0.1:${node.port}`, warnings);
  await counters.settled(5000);
  await expect
    .poll(() => warnings)
    .toContainEqual(
      expect.objectContaining({ reason: expect.stringMatching(/Redis Cluster, which is not supported/) }),
    );
  await expect(counters.run(increment, ['a'], [])).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
  expect(await counters.answers()).toBe(false);
  counters.close();
  node.client.disconnect();
});

test('a command is answered that was sent before this process was busy for longer than the timeout', async () => {
  const { port, client } = await startRedis([]);
  const warnings: unknown[] = [];
  const counters = open(`redis://127.0.0.1:${port}`, warnings);
  await counters.settled(5000);
  expect(await counters.run(increment, ['a'], [])).toBe(1);
  const answer = counters.run(increment, ['a'], []);
  const busyUntil = performance.now() + 3000;
  while (performance.now() < busyUntil);
  expect(await answer).toBe(2);
  expect(await counters.run(increment, ['a'], [])).toBe(3);
  expect(warnings).toEqual([]);
  counters.close();
  client.disconnect();
});

test('commands fail while Redis hangs, and succeed when it answers again', async () => {
  const { port, child, client } = await startRedis([]);
  const counters = open(`redis://127.0.0.1:${port}`, []);
  await counters.settled(5000);
  expect(await counters.run(increment, ['a'], [])).toBe(1);
  child.kill('SIGSTOP');
  await expect(counters.run(increment, ['a'], [])).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
  expect(await counters.answers()).toBe(false);
  child.kill('SIGCONT');
  await expect.poll(() => counters.answers()).toBe(true);
  expect(await counters.run(increment, ['a'], [])).toBeGreaterThan(1);
  counters.close();
  client.disconnect();
});

test.each([
  ['maxmemory 100mb', 'maxmemory-policy noeviction', ['noeviction']],
  ['maxmemory 100mb', 'maxmemory-policy volatile-ttl', []],
  ['maxmemory 0', 'maxmemory-policy noeviction', []],
  ['maxmemory 100mb', 'user default on nopass ~* &* +@all -info', []],
])('with %s and %s, the policies warned about are %j', async (memory, setting, expected) => {
  const { port } = await startRedis([memory, setting]);
  const warnings: unknown[] = [];
  const counters = open(`redis://127.0.0.1:${port}`, warnings);
  await counters.settled(5000);
  // Answered after the INFO of the same connection.
  expect(await counters.answers()).toBe(true);
  counters.close();
  const policies = warnings.map((one) => (one as { readonly policy?: unknown }).policy);
  expect(policies).toEqual(expected);
});
