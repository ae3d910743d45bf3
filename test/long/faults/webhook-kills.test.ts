import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';

import { expect, test } from 'vitest';
import { z } from 'zod';

import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import type { WebhookBody } from '../../../schemas/webhooks/events.ts';
import { verify } from '../../../schemas/webhooks/signature.ts';
import { forgetMembers } from '../../support/faults/forget-members.ts';
import { commit } from '../../support/faults/points.ts';
import { startRole } from '../../support/faults/role.ts';
import { faultWorld } from '../../support/faults/world.ts';
import type { FaultWorld } from '../../support/faults/world.ts';
import { makeWebhooks } from '../../support/make-webhooks.ts';
import { createRandom } from '../../support/random.ts';
import type { Random } from '../../support/random.ts';
import { eventually } from '../../support/service.ts';
import { tds } from '../../support/tds.ts';
import { hex } from '../../support/truth.ts';
import type { Truth } from '../../support/truth.ts';

/**
 * `kill -9` of dispatchers at random, while the chain grows and forks and receivers fail in every way. In the end each
 * webhook was sent what the chain in force says, nothing that no block ever said, and nothing under two ids.
 * `WEBHOOK_KILLS` is how many, `FAULT_SEED` which; the seed decides events, not the moments.
 */
const kills = Number(process.env['WEBHOOK_KILLS'] ?? 6);
const seed = Number(process.env['FAULT_SEED'] ?? Date.now() % 1_000_000);

/** Of two ranges of heights: they come by two partitions. */
const HEAD = 1010;
const DEEPEST = 14;
const TIMEOUT_MS = 400;
const MATCHERS = ['transfers', 'balances', 'launches', 'prices'];

interface Hook {
  readonly secret: string;
  readonly events: ('transfer.created' | 'transfer.reverted')[];
  /** '': any. */
  readonly token: Felt | '';
  readonly address: Felt | '';
  /** Nothing at or below it is sent. */
  readonly above: number;
}

type TransferBody = Extract<WebhookBody, { event: 'transfer.created' | 'transfer.reverted' }>;
type TransferData = TransferBody['data'];

/** What a transfer is in whatever block (decisions 75 and 101); and all that is sent of it, in this one. */
interface Sent {
  readonly what: string;
  readonly whole: string;
}

const sentTruth = (row: Truth, timestamp: unknown): Sent => {
  const amount = row.standard === 'erc721' ? 1n : row.amount;
  const what = [
    hex(BigInt(row.txHash)),
    hex(row.token),
    hex(row.from),
    hex(row.to),
    amount,
    row.tokenId ?? '',
  ];
  const place = [row.block, row.item * 1_048_576 + row.position, timestamp];
  return {
    what: [...what, row.eventIndex, row.item].join(' '),
    whole: [...what, ...place, row.standard, row.fee, hex(row.feeToken)].join(' '),
  };
};
const sentBody = (data: TransferData): string =>
  `${data.txhash} ${data.token_address} ${data.from_address} ${data.to_address} ${data.value} ${data.nft_token_id} ` +
  `${data.block} ${data.event_index} ${data.timestamp} ${data.event_type} ${data.fee} ${data.fee_unit}`;

const meets = ({ token, address, above }: Hook, row: Truth): boolean =>
  row.block > above &&
  (token === '' || token === hex(row.token)) &&
  (address === '' || address === hex(row.from) || address === hex(row.to));

/** All that any block ever held: how it is sent, and which transfer that is. */
function createMemory(node: FaultWorld['node']): {
  readonly ever: ReadonlyMap<string, string>;
  highest(): number;
  look(): void;
} {
  const ever = new Map<string, string>();
  const seen = new Set<string>();
  let highest = HEAD;
  return {
    ever,
    highest: () => highest,
    look() {
      highest = Math.max(highest, node.ledger.head());
      for (let height = HEAD - 1; height <= node.ledger.head(); height += 1) {
        const block = node.ledger.at(height);
        if (block === null || seen.has(block.hash)) continue;
        seen.add(block.hash);
        for (const row of node.transfersAt(height)) {
          const { what, whole } = sentTruth(row, block.header['timestamp']);
          ever.set(whole, what);
        }
      }
    },
  };
}

interface Received {
  readonly hook: number;
  readonly id: string;
  readonly body: string;
  readonly event: TransferBody['event'];
  readonly data: TransferData;
}

/** Answers at random: well, with an error, too late, or not at all; before it has read all of the request, or after. */
function createReceiver(
  hooks: readonly Hook[],
  random: Random,
): {
  readonly server: Server;
  readonly received: Received[];
  readonly complaints: string[];
} {
  const received: Received[] = [];
  const complaints: string[] = [];
  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (random.chance(50)) return void request.destroy();
    const body = await text(request);
    const hook = Number(request.url?.slice(1));
    const { event, data } = verify(body, request.headers, hooks[hook]?.secret ?? '');
    if (event !== 'transfer.created' && event !== 'transfer.reverted')
      throw new TypeError(`not asked for: ${event}`);
    received.push({ hook, id: String(request.headers['x-vendor-delivery']), body, event, data });
    const answer = random.below(20);
    if (answer < 3) response.writeHead(500).end('no');
    else if (answer < 5) request.destroy();
    else if (answer < 6) setTimeout(() => response.end(), TIMEOUT_MS * 1.5);
    else response.end();
  }
  const server = createServer((request, response) => {
    take(request, response).catch((error: unknown) => {
      // Of a dispatcher that was killed while it sent.
      if (!request.complete) return;
      complaints.push(String(error));
      response.writeHead(400).end();
    });
  });
  return { server, received, complaints };
}

/** Grows or forks the chain, above where it was at first. */
function move(node: FaultWorld['node'], random: Random, look: () => void): void {
  if (node.ledger.head() === HEAD || random.chance(600)) {
    node.control({ command: 'advance', blocks: 1 + random.below(2) });
    return look();
  }
  const depth = 1 + random.below(Math.min(DEEPEST, node.ledger.head() - HEAD));
  const { fork } = z.object({ fork: z.number() }).parse(node.control({ command: 'pause' }));
  const length = Math.max(1, depth + random.below(5) - 2);
  const events = random.pick(['fewer', 'same', 'more'] as const);
  node.control({ command: 'reorg', depth, length, events, share: random.below(10) / 10 });
  look();
  if (random.chance(250)) node.control({ command: 'switch', fork });
  look();
}

/** Postgres: deliveries are made, taken or ended, or a position moves. */
const change = /INSERT INTO tds\.webhook_|UPDATE tds\.(webhook|dispatch)_/;
const MAX_STATEMENTS = 25;
const MAX_LIFE_MS = 5000;
/** Of the chain, in one life. */
const MOVES = 3;
const MAX_PAUSE_MS = 500;

/** A dispatcher dies before one of its statements is carried out, or before it hears of it; a few do before they work. */
async function killAtRandom(
  world: FaultWorld,
  settings: Readonly<Record<string, string>>,
  times: number,
  random: Random,
  stir: () => Promise<void>,
): Promise<void> {
  const prefix = world.env['KAFKA_TOPIC_PREFIX'] ?? '';
  const groups = MATCHERS.map((matcher) => `${prefix}dispatch-${matcher}`);
  for (let i = 0; i < times; i += 1) {
    const role = await startRole('dispatch', { ...world.env, ...settings });
    const nth = 1 + random.below(MAX_STATEMENTS);
    const act = random.pick(['hold', 'lose-answer'] as const);
    const request = random.chance(300) ? commit : change;
    const trap = role.proxies.postgres.trap({ request, nth, act });
    const stirring = stir();
    if (random.chance(900)) {
      await role.ready;
      await Promise.race([trap.sprung, sleep(MAX_LIFE_MS)]);
    } else await sleep(random.below(MAX_LIFE_MS / 2));
    role.signal('SIGKILL');
    expect(await role.ended, role.output()).toBe('SIGKILL');
    await Promise.all([role.stop(), stirring]);
    // Else every life but the first would be spent on waiting for the sessions of the dead.
    await forgetMembers(world.env['KAFKA_BROKERS'] ?? '', groups);
  }
}

/** The matcher has read the log to its end, and nothing is left to be sent. */
async function expectDone(world: FaultWorld): Promise<void> {
  expect(await world.isSettled()).toBe(true);
  const heads = await world.kafka.offsets(topics.chainBlocks);
  const { rows } = await world.pool.query<{ partition: number; next_offset: number }>(
    "SELECT partition, next_offset FROM tds.checkpoints WHERE consumer = 'dispatch-transfers'",
  );
  const next = new Map(rows.map((row) => [row.partition, row.next_offset]));
  expect(heads.map(({ partition }) => next.get(partition))).toEqual(heads.map(({ high }) => high));
  const { rows: open } = await world.pool.query(
    "SELECT * FROM tds.webhook_deliveries WHERE due_at IS NOT NULL OR status NOT IN ('success', 'dead') LIMIT 3",
  );
  expect(open).toEqual([]);
}

/** How what was received differs from what the chain in force and those before it say. */
function differencesOf(
  node: FaultWorld['node'],
  hooks: readonly Hook[],
  received: readonly Received[],
  ever: ReadonlyMap<string, string>,
): string[] {
  const found: string[] = [];
  for (const { hook, id, data } of received)
    if (!ever.has(sentBody(data))) found.push(`no block ever held what ${id} sent to hook ${hook}`);
  for (const [id, same] of Map.groupBy(received, (one) => one.id))
    if (new Set(same.map(({ hook, body }) => `${hook} ${body}`)).size > 1)
      found.push(`${id} is not one delivery`);
  for (const [index, hook] of hooks.entries()) {
    const inForce = new Set<string>();
    for (let height = hook.above + 1; height <= node.ledger.head(); height += 1)
      for (const row of node.transfersAt(height))
        if (meets(hook, row)) inForce.add(sentTruth(row, null).what);
    const ids = (event: TransferBody['event']): Map<string, Set<string>> => {
      const ofHook = received.filter((one) => one.hook === index && one.event === event);
      const whats = Map.groupBy(ofHook, ({ data }) => ever.get(sentBody(data)) ?? '');
      return new Map([...whats].map(([what, same]) => [what, new Set(same.map(({ id }) => id))]));
    };
    const created = ids('transfer.created');
    const reverted = ids('transfer.reverted');
    const hearsOfReverts = hook.events.includes('transfer.reverted');
    for (const what of new Set([...inForce, ...created.keys(), ...reverted.keys()])) {
      const came = created.get(what)?.size ?? 0;
      const went = reverted.get(what)?.size ?? 0;
      const isThere = inForce.has(what);
      // Once more than it went, as long as it is there; where nobody hears of that, once and for all.
      const isRight = hearsOfReverts ? came - went === (isThere ? 1 : 0) : went === 0 && came === 1;
      if (!isRight)
        found.push(`hook ${index}, ${isThere ? 'in' : 'not in'} force: came ${came}, went ${went}: ${what}`);
    }
  }
  return found;
}

test(
  `${kills} kills of dispatchers (FAULT_SEED=${seed})`,
  { timeout: 600_000 + kills * 10_000 },
  async () => {
    const random = createRandom(seed);
    const world = await faultWorld({ seed: `webhooks ${seed}`, initialHead: HEAD, transfersPerBlock: 8 });
    const { node } = world;
    let server: Server | null = null;
    try {
      node.control({ command: 'setL1', height: 1000 });
      await Promise.all([world.start('project'), world.start('ingest', { INDEX_FROM: '1000' })]);
      const samples = Array.from({ length: 30 }, (_, i) => node.transfersAt(HEAD - i)).flat();
      const most = (keys: readonly bigint[]): Felt[] =>
        [...Map.groupBy(keys, toFelt)].toSorted(([, a], [, b]) => b.length - a.length).map(([key]) => key);
      const [coin = '', other = ''] = most(samples.map(({ token }) => token));
      const [someone = ''] = most(samples.filter(({ token }) => hex(token) === other).map(({ to }) => to));
      const hook = (
        events: 'created' | 'both',
        token: Hook['token'],
        address: Hook['address'],
        above: number,
      ): Hook => ({
        secret: `whsec_${randomBytes(32).toString('base64')}`,
        events: events === 'both' ? ['transfer.created', 'transfer.reverted'] : ['transfer.created'],
        token,
        address,
        above,
      });
      const hooks = [
        hook('created', coin, '', HEAD),
        hook('both', '', someone, HEAD),
        hook('created', other, someone, HEAD),
        hook('both', '', '', HEAD),
        hook('created', '', '', HEAD + 20),
      ];
      const receiver = createReceiver(hooks, random);
      ({ server } = receiver);
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      await eventually(async () => expect(await world.isSettled()).toBe(true));
      const { port } = server.address() as AddressInfo;
      await makeWebhooks(
        { ...world, secretKey: Buffer.from(world.env['SECRET_KEY'] ?? '', 'hex') },
        hooks.map(({ token, address, ...one }, index) => ({
          ...one,
          url: `http://127.0.0.1:${port}/${index}`,
          subscriptions: [{ token, address }],
        })),
      );

      const settings = {
        WEBHOOK_ALLOW_NETWORKS: '127.0.0.0/8',
        WEBHOOK_RETRY_DELAYS: Array.from({ length: 20 }, (_, i) => Math.min(1, 0.05 * 2 ** i)).join(),
        WEBHOOK_TIMEOUT_MS: String(TIMEOUT_MS),
        WEBHOOK_DISABLE_AFTER: '1000000',
      };
      const memory = createMemory(node);
      const stir = async (): Promise<void> => {
        for (let times = 0; times < MOVES; times += 1) {
          await sleep(random.below(MAX_PAUSE_MS));
          move(node, random, () => memory.look());
        }
      };
      // Side by side, until the one has died for the last time.
      const alone = Math.ceil(kills * 0.6);
      await Promise.all([
        killAtRandom(world, settings, alone, random, stir),
        killAtRandom(world, settings, kills - alone, random, stir),
      ]);
      const { rows: made } = await world.pool.query('SELECT 1 FROM tds.webhook_deliveries');
      expect(made.length, 'made by those that died').toBeGreaterThan(0);

      // What is gone is sent as reverted ten blocks on.
      node.control({ command: 'advance', blocks: memory.highest() + 12 - node.ledger.head() });
      memory.look();
      await world.start('dispatch', settings);
      // Leases of the dead end by themselves, and so do their sessions with Kafka.
      await eventually(async () => await expectDone(world), 180_000, 500);
      const differences = (): string[] => differencesOf(node, hooks, receiver.received, memory.ever);
      expect(receiver.complaints).toEqual([]);
      expect(differences()).toEqual([]);
      expect(receiver.received.length).toBeGreaterThan(0);

      // What is sent is no part of any read model: one that is made anew sends nothing again.
      const before = receiver.received.length;
      const { code, stdout, stderr } = await tds(world.env, 'rebuild', '--all');
      expect(code, stdout + stderr).toBe(0);
      node.control({ command: 'advance', blocks: 1 });
      memory.look();
      await eventually(async () => await expectDone(world), 90_000, 500);
      expect(differences()).toEqual([]);
      const late = receiver.received.slice(before).map(({ data }) => data.block);
      expect(new Set(late)).toEqual(new Set([node.ledger.head()]));
    } finally {
      server?.closeAllConnections();
      server?.close();
      await world.close();
    }
  },
);
