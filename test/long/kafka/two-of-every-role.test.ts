import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { verify } from '../../../schemas/webhooks/signature.ts';
import { inspector } from '../../support/faults/inspect.ts';
import type { Inspector } from '../../support/faults/inspect.ts';
import { spawnRole } from '../../support/faults/role.ts';
import type { RoleName, RoleProcess } from '../../support/faults/role.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { startKafkaCluster } from '../../support/kafka-cluster.ts';
import type { KafkaCluster } from '../../support/kafka-cluster.ts';
import { makeWebhooks } from '../../support/make-webhooks.ts';
import { createRandom } from '../../support/random.ts';
import { allTransfers, eventually } from '../../support/service.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { tds } from '../../support/tds.ts';
import { hex, servedRow, trueRow } from '../../support/truth.ts';

/**
 * Two processes of every role on three brokers, one of which is killed every few seconds and replaced. `PAIR_SECONDS` is for
 * how long (600: ten minutes), `FAULT_SEED` which.
 */
const seconds = Number(process.env['PAIR_SECONDS'] ?? 45);
const seed = Number(process.env['FAULT_SEED'] ?? Date.now() % 1_000_000);
const random = createRandom(seed);

const KILL_EVERY_MS = 8000;
const HEAD = 300;
const roles: readonly RoleName[] = ['project', 'ingest', 'observe', 'dispatch', 'api'];

interface Received {
  readonly id: string;
  readonly attempt: number;
  readonly body: string;
  /** Kills of dispatchers before it. */
  readonly kills: number;
}

const transferBody = z.object({ data: z.object({ txhash: z.string(), event_index: z.number() }) });

let cluster: KafkaCluster;
let own: Isolated;
let node: SimulatedNode;
let inspected: Inspector;
let env: Record<string, string>;
let receiver: Server;
const pairs = new Map<RoleName, RoleProcess[]>();
/** Base URLs of the two API processes. */
const urls: string[] = [];

const secret = `whsec_${randomBytes(32).toString('base64')}`;
const received: Received[] = [];
let dispatcherKills = 0;

function start(name: RoleName, index: number): RoleProcess {
  const settings = name === 'api' ? { PORT: new URL(urls[index] ?? '').port } : {};
  return spawnRole(name, { ...env, ...settings });
}

beforeAll(async () => {
  [cluster, own] = await Promise.all([startKafkaCluster(), isolated()]);
  node = await createSimulatedNode({
    seed: `pairs ${seed}`,
    manual: true,
    initialHead: HEAD,
    transfersPerBlock: 8,
    malformed: 0.02,
    l1: null,
  });
  node.control({ command: 'setL1', height: HEAD - 50 });
  env = {
    ...own.env,
    KAFKA_BROKERS: cluster.urls.join(','),
    STARKNET_RPC_URL: node.url,
    INDEX_FROM: '0',
    BACKFILL_CHUNK_BLOCKS: '60',
    SECRET_KEY: randomBytes(32).toString('hex'),
    ADMIN_USERNAME: 'admin',
    ADMIN_PASSWORD: randomBytes(12).toString('hex'),
    WEBHOOK_ALLOW_NETWORKS: '127.0.0.0/8',
    LOG_LEVEL: 'warn',
  };
  inspected = inspector(node, env);
  const { code, stdout, stderr } = await tds(env, 'migrate');
  expect(code, stdout + stderr).toBe(0);
  receiver = createServer((request, response) => {
    const kills = dispatcherKills;
    void text(request).then(
      (body) => {
        verify(body, request.headers, secret);
        const id = String(request.headers['x-vendor-delivery']);
        received.push({ id, attempt: Number(request.headers['x-vendor-attempt']), body, kills });
        response.end();
      },
      // Of a dispatcher that was killed while it sent.
      () => response.destroy(),
    );
  }).listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  for (let index = 0; index < 2; index += 1) urls.push(`http://127.0.0.1:${await freePort()}`);
  for (const name of roles) pairs.set(name, [start(name, 0), start(name, 1)]);
  await Promise.all([...pairs.values()].flat().map(({ ready }) => ready));
});
afterAll(async () => {
  await Promise.all([...pairs.values()].flat().map((role) => role.stop()));
  receiver?.closeAllConnections();
  receiver?.close();
  await inspected?.close();
  await node?.close();
  await cluster?.stop();
  await own?.drop();
});

/** Kills one of every role in turn, and starts another in its place. */
async function killInTurn(): Promise<number> {
  let kills = 0;
  for (const end = Date.now() + seconds * 1000; Date.now() < end; kills += 1) {
    const name = roles[kills % roles.length] ?? 'project';
    const pair = pairs.get(name) ?? [];
    const index = random.below(2);
    const victim = pair[index];
    if (victim === undefined || !victim.isRunning())
      throw new Error(`${name} has exited: ${victim?.output()}`);
    victim.signal('SIGKILL');
    await victim.ended;
    if (name === 'dispatch') dispatcherKills += 1;
    pair[index] = start(name, index);
    await sleep(KILL_EVERY_MS);
  }
  return kills;
}

/**
 * A delivery for each transfer above the first head, under one id, and again only after the kill of a dispatcher: as the same
 * attempt, because a dispatcher that is killed before it stores the outcome leaves the attempt uncounted.
 */
function deliveryDifferences(): string[] {
  const expected = new Set<string>();
  for (let height = HEAD + 1; height <= node.ledger.head(); height += 1)
    for (const { txHash, item, position } of node.transfersAt(height))
      expected.add(`${hex(BigInt(txHash))} ${item * 1_048_576 + position}`);
  const ids = new Map<string, Set<string>>();
  for (const { id, body } of received) {
    const { txhash, event_index } = transferBody.parse(JSON.parse(body)).data;
    const transfer = `${txhash} ${event_index}`;
    ids.set(transfer, (ids.get(transfer) ?? new Set()).add(id));
  }
  const repeats = [...Map.groupBy(received, ({ id }) => id)].filter(([, same]) => same.length > 1);
  return [
    ...[...expected].filter((transfer) => !ids.has(transfer)).map((transfer) => `not delivered: ${transfer}`),
    ...[...ids].flatMap(([transfer, { size }]) =>
      expected.has(transfer) && size === 1 ? [] : [`${size} deliveries: ${transfer}`],
    ),
    ...repeats.flatMap(([id, same]) => {
      const [first, ...again] = same;
      const isRight = again.every(
        ({ attempt, body, kills }, i) =>
          body === first?.body && attempt >= (same[i]?.attempt ?? 0) && kills > first.kills,
      );
      return isRight ? [] : [`${id} again: ${JSON.stringify(same)}`];
    }),
  ];
}

test(
  `two of every role index and deliver each transfer once, for ${seconds} s of kills (FAULT_SEED=${seed})`,
  { timeout: 400_000 + seconds * 2000 },
  async ({ annotate }) => {
    const { port } = receiver.address() as AddressInfo;
    const hook = { url: `http://127.0.0.1:${port}/`, secret, above: HEAD };
    await makeWebhooks({ ...inspected, secretKey: Buffer.from(env['SECRET_KEY'] ?? '', 'hex') }, [
      { ...hook, events: ['transfer.created'], subscriptions: [{ token: '', address: '' }] },
    ]);
    const ended = new AbortController();
    const growing = (async () => {
      for (; !ended.signal.aborted; await sleep(1000, ended.signal))
        node.control({ command: 'advance', blocks: 1 });
    })();
    const kills = await killInTurn().finally(() => ended.abort());
    await growing;
    const running = [...pairs.values()].flat();
    await Promise.all(running.map(({ ready }) => ready));

    await eventually(async () => expect(await inspected.isSettled().catch(String)).toBe(true), 180_000, 500);
    expect(await inspected.differences()).toEqual([]);
    await eventually(async () => expect(deliveryDifferences()).toEqual([]), 90_000, 500);
    expect(running.filter((role) => !role.isRunning()).map((role) => role.output())).toEqual([]);
    await annotate(`${kills} kills, ${received.length} requests to the webhook`);

    const added = await tds(env, 'keys', 'add', 'admin', 'reader');
    const key = /: (\S+)\s*$/.exec(added.stdout)?.[1] ?? '';
    for (const url of urls) {
      const get = async (path: string) => {
        const response = await fetch(url + path, { headers: { 'api-key': key } });
        return { status: response.status, headers: response.headers, json: await response.json() };
      };
      expect((await get('/readyz')).status).toBe(200);
      const height = node.ledger.head();
      const { rows } = await allTransfers({ get }, `block=${height}&order=asc`);
      expect(rows.map(servedRow)).toEqual(node.transfersAt(height).map(trueRow));
    }
  },
);
