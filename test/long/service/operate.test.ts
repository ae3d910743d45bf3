import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { createKafka } from '../../../infra/kafka/client.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { topics } from '../../../schemas/topics.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { allTransfers, eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { tds as runTds } from '../../support/tds.ts';
import { servedRow, trueRow } from '../../support/truth.ts';

/**
 * An operator's day: blocks that came short from a node whose headers count nothing, a message that nobody can read, a
 * role that is stopped, one that is killed, and a stop in the middle of the work.
 */

const HEAD = 60;
/** Below and above the height accepted on L1. */
const SHORT = [7, 55];
let own: Isolated;
let node: SimulatedNode;
let service: RunningService;
let dataDir: string;
let env: Record<string, string>;

const tds = async (...args: readonly string[]) => await runTds({ ...env, DATA_DIR: dataDir }, ...args);
const readiness = z.object({
  status: z.string(),
  halted: z.array(z.looseObject({ projection: z.string() })),
  roles: z.array(z.object({ name: z.string(), state: z.string(), detail: z.string().nullable() })),
});
const ready = async () => {
  const { status, json } = await service.get('/readyz');
  return { ...readiness.parse(json), code: status };
};
const stateOf = async (name: string) => (await ready()).roles.find((role) => role.name === name)?.state;
const indexedUpTo = async (height: number): Promise<void> =>
  await eventually(async () => {
    const { headers } = await service.get('/api/tokens/?limit=1');
    expect(Number(headers.get('x-indexed-block'))).toBeGreaterThanOrEqual(height);
  });
const start = async (): Promise<void> => {
  service = await startService(dataDir, env);
};

beforeAll(async () => {
  own = await isolated();
  dataDir = mkdtempSync(join(tmpdir(), 'tds-e2e-'));
  node = await createSimulatedNode({
    seed: 'operate',
    manual: true,
    initialHead: HEAD,
    l1: { lag: 20, step: 5 },
    specVersion: '0.8',
  });
  for (const height of SHORT) {
    node.faults.add({ kind: 'missing-events', heights: { from: height, to: height } });
  }
  env = {
    ...own.env,
    STARKNET_RPC_URL: node.url,
    INDEX_FROM: '0',
    SECRET_KEY: '5c'.repeat(32),
    PORT: String(await freePort()),
  };
  await start();
});
afterAll(async () => {
  await service?.stop();
  await node?.close();
  await own?.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

test('verify reports incomplete blocks and has them repaired', async () => {
  await indexedUpTo(HEAD);
  node.faults.clear();
  const found = await tds('verify');
  expect(found.stdout.split('\n').filter((line) => line.startsWith('node: '))).toEqual(
    SHORT.map((height) =>
      expect.stringMatching(new RegExp(`^node: block ${height}: the log has \\d+ events, the node \\d+$`)),
    ),
  );
  expect(found.stdout).toMatch(new RegExp(`Blocks 0 to ${HEAD}, \\d+ messages: 2 differences\\.\n$`));
  expect(found.code).toBe(1);

  const repaired = await tds('verify', '--repair');
  expect(repaired).toMatchObject({ code: 0, stdout: expect.stringContaining(': no difference.') });
  for (const height of SHORT) {
    const { rows, count } = await allTransfers(service, `block=${height}&order=asc`);
    expect(rows.map(servedRow)).toEqual(node.transfersAt(height).map(trueRow));
    expect(count).toBe(node.transfersAt(height).length);
  }
  expect(await tds('verify', '--node', '--from', '5', '--to', '9', '--json')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('"differences": []'),
  });
  expect(await tds('verify', '--from', '900')).toEqual({
    code: 2,
    stdout: '',
    stderr: `Nothing is indexed there: the heights are 0 to ${HEAD}\n`,
  });
});

test('an unreadable message halts its partition until an operator skips it', async () => {
  await eventually(async () => expect((await ready()).code).toBe(200));
  const kafka = createKafka({
    brokers: own.env.KAFKA_BROKERS.split(','),
    clientId: 'test',
    topicPrefix: own.env.KAFKA_TOPIC_PREFIX,
    log: createLogger('test', 'silent'),
  });
  const publisher = kafka.publisher();
  const [place] = await publisher.publish(topics.chainBlocks, [{ value: { v: 0 } as never, partition: 0 }]);
  await publisher.close();
  await kafka.close();
  const id = `chain.blocks:0:${place?.offset}`;
  await eventually(async () => expect((await ready()).code).toBe(503));
  expect((await ready()).halted.map(({ projection }) => projection)).toContain('transfers');
  expect(await tds('quarantine', 'list')).toMatchObject({ code: 0, stdout: expect.stringContaining(id) });
  const halted = await tds('verify');
  expect(halted.code).toBe(1);
  expect(halted.stdout).toContain(`halt: transfers is halted at ${id}`);
  expect(await tds('quarantine', 'skip', id)).toMatchObject({ code: 0 });
  await eventually(async () => expect((await ready()).code).toBe(200));
  expect(await tds('verify')).toMatchObject({ code: 0 });
});

test('status reports a frozen role, which continues when it is resumed', async () => {
  for (const name of ['ingest', 'project', 'observe', 'dispatch']) {
    await eventually(async () => expect(await stateOf(name)).toBe('working'));
  }
  const { project } = service.pids();
  process.kill(project!, 'SIGSTOP');
  await eventually(async () => expect(await stateOf('project')).toBe('missing'));
  expect((await ready()).code).toBe(200);
  expect((await tds('status', '--once')).stdout).toMatch(/^project +missing since /m);
  process.kill(project!, 'SIGCONT');
  await eventually(async () => expect(await stateOf('project')).toBe('working'));
});

test('a killed role is restarted; a stop in the middle of the work loses nothing', async () => {
  const before = service.pids();
  node.control({ command: 'advance', blocks: 30 });
  process.kill(before['ingest']!, 'SIGKILL');
  await eventually(async () => expect(service.pids()['ingest']).not.toBe(before['ingest']));
  await eventually(async () => expect(await stateOf('ingest')).toBe('working'));
  // Each restart waits longer than the one before.
  for (let kills = 0; kills < 2; kills += 1) {
    const { ingest } = service.pids();
    process.kill(ingest!, 'SIGKILL');
    await eventually(async () => expect(service.pids()['ingest']).not.toBe(ingest));
  }
  const pauses = [...service.printed().matchAll(/"role":"ingest".*"delay_ms":(\d+)/g)].map(([, ms]) =>
    Number(ms),
  );
  expect(pauses).toHaveLength(3);
  for (const [failures, longest] of [500, 1000, 2000].entries()) {
    // Less up to half by chance.
    expect(pauses[failures]).toBeGreaterThanOrEqual(longest / 2);
    expect(pauses[failures]).toBeLessThanOrEqual(longest);
  }

  node.control({ command: 'advance', blocks: 200 });
  await indexedUpTo(HEAD + 40);
  await service.stop('SIGTERM');
  // Drained, not ended by force: leases are let go, and each process has said that it ends.
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test' });
  const { rows } = await pool.query('SELECT name FROM tds.chunks WHERE lease_until IS NOT NULL');
  expect(rows).toEqual([]);
  await pool.end();
  await start();
  await indexedUpTo(HEAD + 230);
  const verified = await tds('verify', '--node');
  expect(verified).toMatchObject({ code: 0, stdout: expect.stringContaining('no difference') });
});
