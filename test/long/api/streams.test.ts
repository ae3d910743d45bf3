import { get } from 'node:http';
import type { IncomingMessage } from 'node:http';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import type { Inspector } from '../../support/faults/inspect.ts';
import { createRandom } from '../../support/random.ts';
import type { Random } from '../../support/random.ts';
import { eventually } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { simulatedService } from '../../support/simulated-service.ts';
import type { SimulatedService } from '../../support/simulated-service.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { apply, createHeld, readEvents, readLines } from '../../support/stream-client.ts';
import type { Held, StreamMessage } from '../../support/stream-client.ts';

/** Streams of the whole service through reorgs, cut connections and killed roles, against what the chain intended. */

const HEAD = 1640;
const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const SEED = Number(process.env['STREAMS_SEED'] ?? 20_261_125);
/** Each takes a fifth of a second. */
const CURSORS = Number(process.env['STREAMS_CURSORS'] ?? 200);
const random = createRandom(SEED);
let world: SimulatedService;
let node: SimulatedNode;
let service: RunningService;
let inspected: Inspector;
let l1 = 60;

beforeAll(async () => {
  world = await simulatedService(
    { seed: 'streams', initialHead: HEAD, transfersPerBlock: 1, l1Height: l1 },
    { settings: { L1_POLL_SECONDS: '1' } },
  );
  ({ node, service, inspected } = world);
});
afterAll(async () => {
  await world?.close();
});

interface Kind {
  readonly name: string;
  readonly query: string;
  readonly isLines?: true;
  has(row: { token: bigint; from: bigint; to: bigint }): boolean;
}

const isStrk = ({ token }: { token: bigint }): boolean => token === BigInt(STRK);

/** The keys of the transfers of the canonical chain up to a height, as a client holds them. */
function truth(kind: Kind, top: number): string[] {
  return Array.from({ length: top + 1 }, (_, height) =>
    node
      .transfersAt(height)
      .filter((row) => kind.has(row))
      .map((row) => `${height}:${row.item * 1_048_576 + row.position}:${row.token}`),
  ).flat();
}

const upTo = (held: Held, top: number): string[] =>
  [...held.transfers].filter(([, block]) => block <= top).map(([key]) => key);

/** A client that is cut at random moments, and goes on with its newest cursor. */
function follow(kind: Kind, dice: Random) {
  const held = createHeld();
  const log: StreamMessage[] = [];
  const problems: string[] = [];
  const stop = new AbortController();
  let cursor: string | null = null;
  let finals = 0;
  const take = (message: StreamMessage): void => {
    apply(held, message);
    log.push(message);
    ({ cursor } = message);
    if (message.type !== 'final') return;
    finals += 1;
    const { height } = message.data;
    if (upTo(held, height).join() !== truth(kind, height).join()) problems.push(`final ${height} differs`);
  };
  const connect = async (): Promise<void> => {
    const cut = new AbortController();
    const signal = AbortSignal.any([cut.signal, stop.signal]);
    const headers: Record<string, string> = { 'api-key': service.demo.api_key };
    if (kind.isLines === undefined) headers['accept'] = 'text/event-stream';
    const useHeader = kind.isLines === undefined && cursor !== null;
    if (useHeader) headers['last-event-id'] = cursor ?? '';
    const from = useHeader || cursor === null ? '0' : cursor;
    const limit = kind.isLines === undefined ? '' : `&wait=1&limit=${1 + dice.below(300)}`;
    const url = `${service.baseUrl}/api/stream/transfers/?${kind.query}${limit}&from=${encodeURIComponent(from)}`;
    const response = await fetch(url, { headers, signal });
    if (response.status === 400) throw new TypeError(await response.text());
    if (response.status !== 200) throw new Error(`${response.status}`);
    let left = dice.below(3) === 0 ? dice.below(50) : 200 + dice.below(2000);
    for await (const message of (kind.isLines === undefined ? readEvents : readLines)(response)) {
      take(message);
      left -= 1;
      if (left > 0) continue;
      cut.abort();
      return;
    }
  };
  const running = (async () => {
    while (!stop.signal.aborted) {
      try {
        await connect();
      } catch (error) {
        // Cut here or by a killed role; what the stream promises is checked by `apply`, which throws an Error of its own.
        const text = String(error);
        if (/out of order|not the next|bad range|not the block|invalid_|TypeError: \{/.test(text))
          problems.push(text);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  })();
  return {
    kind,
    held,
    log,
    problems,
    finals: () => finals,
    async close() {
      stop.abort();
      await running;
    },
  };
}

const kinds: readonly Kind[] = [
  { name: 'everything', query: '', has: () => true },
  { name: 'a token', query: `token=${STRK}`, has: isStrk },
  { name: 'a token, in NDJSON', query: `token=${STRK}`, isLines: true, has: isStrk },
  { name: 'mints', query: 'from_account=0x0', has: ({ from }) => from === 0n },
];
const finalKind: Kind = { name: 'only final blocks', query: 'finality=l1', has: () => true };

const settled = async (): Promise<void> => {
  await eventually(async () => expect(await inspected.isSettled()).toBe(true), 150_000);
};

test(`clients hold the canonical transfers through cuts, reorgs and kills (STREAMS_SEED=${SEED})`, async () => {
  const clients = kinds.map((kind, i) => follow(kind, createRandom(SEED + i)));
  const final = follow(finalKind, createRandom(SEED + 100));
  const all = [...clients, final];
  const agree = async (): Promise<void> => {
    const head = node.ledger.head();
    await eventually(async () => {
      for (const { kind, held } of clients) {
        expect(held.newest, kind.name).toEqual({ block: head, event: Infinity });
        expect(held.hashes.get(head)).toBe(padded(node.ledger.at(head)?.hash ?? ''));
      }
      expect(final.held.newest.block).toBe(l1);
    }, 120_000);
    for (const { kind, held, problems } of clients) {
      expect(problems, kind.name).toEqual([]);
      expect([...held.transfers.keys()], kind.name).toEqual(truth(kind, head));
    }
    expect(final.problems).toEqual([]);
    expect([...final.held.transfers.keys()]).toEqual(truth(finalKind, l1));
    expect(final.log.filter(({ type }) => type === 'undo')).toEqual([]);
  };
  const kill = (role: string): void => {
    process.kill(service.pids()[role] ?? 0, 'SIGKILL');
  };
  await settled();
  await agree();
  for (const [depth, length, role] of [
    [1, 2, 'api'],
    [40, 30, 'project'],
    [1500, 1490, null],
    [40, 56, 'ingest'],
  ] as const) {
    node.control({ command: 'reorg', depth, length, share: 0.4, events: random.pick(['fewer', 'more']) });
    if (role !== null) kill(role);
    await settled();
    await agree();
    node.control({ command: 'advance', blocks: 3 });
    l1 += 20;
    node.control({ command: 'setL1', height: l1 });
    await settled();
    await agree();
  }
  for (const { kind, finals } of all) expect(finals(), kind.name).toBeGreaterThan(3);
  await Promise.all(all.map((client) => client.close()));
  logs.push(...clients.map(({ kind, log }) => ({ kind, log })));
}, 600_000);

const logs: { kind: Kind; log: StreamMessage[] }[] = [];

test(`${CURSORS} random cursors go on where they were, also those on reverted blocks`, async () => {
  const head = node.ledger.head();
  let undone = 0;
  for (let i = 0; i < CURSORS; i += 1) {
    const { kind, log } = logs[1 + random.below(logs.length - 1)] ?? { kind: kinds[0] as Kind, log: [] };
    // Most of them near the end, where the reorgs are.
    const back = random.below(8) === 0 ? log.length : log.length >> 3;
    const known = log.slice(0, log.length - random.below(back));
    const held = createHeld();
    for (const message of known) apply(held, message);
    let cursor = known.at(-1)?.cursor ?? '';
    for (let isFirst = true; ; isFirst = false) {
      const query = `${kind.query}&wait=0&limit=10000&from=${encodeURIComponent(cursor)}`;
      const response = await fetch(`${service.baseUrl}/api/stream/transfers/?${query}`, {
        headers: { 'api-key': service.demo.api_key },
      });
      expect(response.status).toBe(200);
      const messages: StreamMessage[] = [];
      for await (const message of readLines(response)) messages.push(message);
      for (const message of messages) apply(held, message);
      if (isFirst && messages[0]?.type === 'undo') undone += 1;
      if (messages.length === 0) break;
      cursor = messages.at(-1)?.cursor ?? '';
    }
    expect([...held.transfers.keys()], `cursor ${i} of ${kind.name}`).toEqual(truth(kind, head));
  }
  expect(undone).toBeGreaterThan(CURSORS / 20);
}, 400_000);

/** Opens a stream of events of everything from 0, without reading it. */
async function openUnread(apiKey: string): Promise<IncomingMessage> {
  const url = `${service.baseUrl}/api/stream/transfers/?from=0`;
  const headers = { 'api-key': apiKey, accept: 'text/event-stream' };
  return await new Promise((resolve, reject) => {
    get(url, { headers, agent: false }, resolve).on('error', reject);
  });
}

/** The last message of a stream, and whether the answer ended as it should. */
async function lastOf(response: IncomingMessage): Promise<{ last: StreamMessage; held: Held }> {
  const held = createHeld();
  let last: StreamMessage | null = null;
  for await (const message of readEvents({ body: response })) {
    apply(held, message);
    last = message;
  }
  expect(response.complete).toBe(true);
  if (last === null) throw new Error('no message');
  return { last, held };
}

test('a stream ends with its cursor when its key is deleted, its reader is slow or the service stops', async () => {
  await settled();
  const session = await post('/api/users/auth/login/', {
    username: service.demo.username,
    password: service.demo.password,
  });
  const { token } = z.object({ token: z.string() }).parse(session);
  const authorization = `Bearer ${token}`;
  const made = await post('/api/users/auth/create-api-key/', { name: 'to be deleted' }, { authorization });
  const key = z.object({ id: z.number(), key: z.string() }).parse(made);
  const deleted = lastOf(await openUnread(key.key));
  const slow = await openUnread(service.demo.api_key);
  const openedAt = performance.now();
  const stopped = lastOf(await openUnread(service.demo.api_key));
  await post('/api/users/auth/api-keys/delete/', { key_id: key.id }, { authorization });
  expect((await deleted).last).toMatchObject({ type: 'end', data: { reason: 'limit' } });

  // Longer than a client may take nothing.
  await new Promise((resolve) => setTimeout(resolve, openedAt + 24_000 - performance.now()));
  const { last: end, held } = await lastOf(slow);
  expect(end).toMatchObject({ type: 'end', data: { reason: 'slow' } });
  expect(held.newest.block).toBeLessThan(node.ledger.head());
  const rest = await fetch(`${service.baseUrl}/api/stream/transfers/?limit=10000&from=${end.cursor}`, {
    headers: { 'api-key': service.demo.api_key },
  });
  for await (const message of readLines(rest)) apply(held, message);
  const whole = held.newest.block - 1;
  expect(upTo(held, whole)).toEqual(truth(kinds[0] as Kind, whole));

  await service.stop();
  const { last, held: all } = await stopped;
  expect(last).toMatchObject({ type: 'end', data: { reason: 'shutdown' } });
  expect([...all.transfers.keys()]).toEqual(truth(kinds[0] as Kind, node.ledger.head()));
}, 120_000);

async function post(path: string, body: object, headers: Record<string, string> = {}): Promise<unknown> {
  const response = await fetch(service.baseUrl + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  expect(response.status, path).toBeLessThan(300);
  return await response.json();
}

const padded = (hash: string): string => `0x${BigInt(hash).toString(16).padStart(64, '0')}`;
