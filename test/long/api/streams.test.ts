import { get } from 'node:http';
import type { IncomingMessage, RequestOptions } from 'node:http';
import { connect } from 'node:net';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import type { Inspector } from '../../support/faults/inspect.ts';
import { createRandom } from '../../support/random.ts';
import { eventually } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { simulatedService } from '../../support/simulated-service.ts';
import type { SimulatedService } from '../../support/simulated-service.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { apply, createHeld, readEvents, readLines } from '../../support/stream-client.ts';
import type { Held, StreamMessage } from '../../support/stream-client.ts';
import { followStream, repeatedCursors } from '../../support/stream-follower.ts';
import type { StreamFollower } from '../../support/stream-follower.ts';
import { createStreamOracle, heldLines, sentLines } from '../../support/stream-oracle.ts';
import type { StreamKind, StreamOracle } from '../../support/stream-oracle.ts';
import { hex } from '../../support/truth.ts';

/** Streams of the whole service through reorgs, cut connections and killed processes, against what the chain intended. */

const HEAD = 1040;
const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const SEED = Number(process.env['STREAMS_SEED'] ?? 20_261_125);
const CURSORS = Number(process.env['STREAMS_CURSORS'] ?? 100);
const random = createRandom(SEED);
let world: SimulatedService;
let node: SimulatedNode;
let service: RunningService;
let inspected: Inspector;
let oracle: StreamOracle;
/** Of the node, and what all streams have been given of it. */
let l1 = 60;
let givenL1 = -1;

beforeAll(async () => {
  world = await simulatedService(
    { seed: 'streams', initialHead: HEAD, transfersPerBlock: 1, l1Height: l1 },
    { settings: { L1_POLL_SECONDS: '1' }, hasOwnStores: true },
  );
  ({ node, service, inspected } = world);
  oracle = createStreamOracle(node);
});
afterAll(async () => {
  await world?.close();
});

const isStrk = ({ token }: { token: bigint }): boolean => token === BigInt(STRK);
const everything: StreamKind = { name: 'everything', query: '', has: () => true };
const onlyFinal: StreamKind = {
  name: 'only final blocks',
  query: 'finality=l1',
  isFinal: true,
  has: () => true,
};
const kinds: readonly StreamKind[] = [
  everything,
  { name: 'a token', query: `token=${STRK}`, has: isStrk },
  { name: 'a token, in NDJSON', query: `token=${STRK}`, isLines: true, has: isStrk },
  { name: 'mints', query: 'from_account=0x0', has: ({ from }) => from === 0n },
  onlyFinal,
];

const topOf = (kind: StreamKind): number => (kind.isFinal === true ? l1 : node.ledger.head());
/** A client of this kind holds exactly the canonical transfers and blocks. */
function expectTruth(kind: StreamKind, held: Held, what = kind.name): void {
  expect(heldLines(held, Infinity), what).toEqual(oracle.lines(kind, topOf(kind)));
}

const settled = async (): Promise<void> => {
  await eventually(async () => expect(await inspected.isSettled()).toBe(true), 150_000);
};
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Kills a process of the service; resolves when another one has taken its place. */
async function kill(name: string): Promise<void> {
  const pid = service.pids()[name] ?? 0;
  expect(pid, name).toBeGreaterThan(0);
  process.kill(pid, 'SIGKILL');
  await eventually(async () => expect(service.pids()[name], name).not.toBe(pid));
}

/** The clients have come to the newest block, and have got there as the stream promises. */
async function agree(clients: readonly StreamFollower[]): Promise<void> {
  await settled();
  const isBroken = (): boolean => clients.some(({ problems }) => problems.length > 0);
  await eventually(async () => {
    if (isBroken()) return;
    for (const { kind, held } of clients) {
      const top = topOf(kind);
      expect(held.newest, kind.name).toEqual({ block: top, event: Infinity });
      expect(held.blocks.get(top)?.hash, kind.name).toBe(hex(BigInt(node.ledger.at(top)?.hash ?? 0)));
    }
  });
  for (const { kind, held, problems, log } of clients) {
    expect(problems, kind.name).toEqual([]);
    expectTruth(kind, held);
    if (kind.isFinal === true) expect(log.filter(({ type }) => type === 'undo')).toEqual([]);
  }
  givenL1 = l1;
}

const logs: { kind: StreamKind; log: readonly StreamMessage[] }[] = [];

test(`clients hold the canonical transfers through cuts, reorgs and kills (STREAMS_SEED=${SEED})`, async () => {
  const bounds = () => ({ least: givenL1, most: l1 });
  const clients = kinds.map((kind, i) =>
    followStream(kind, createRandom(SEED + i), { service, oracle, l1: bounds }),
  );
  const [first] = clients;
  const isDeep = (message: StreamMessage): boolean =>
    message.type === 'undo' && message.data.from < HEAD - 500;
  await agree(clients);
  // Blocks that were reverted come again.
  const { fork } = z.object({ fork: z.int() }).parse(node.control({ command: 'pause' }));
  node.control({ command: 'reorg', depth: 2, length: 3 });
  await agree(clients);
  node.control({ command: 'switch', fork });
  await agree(clients);
  for (const { depth, length, killed } of [
    { depth: 1, length: 2, killed: ['api', 'redis'] },
    { depth: 40, length: 30, killed: ['project', 'postgres', 'observe'] },
    { depth: 900, length: 890, killed: ['clickhouse', 'api', 'project'] },
    { depth: 40, length: 56, killed: ['ingest', 'kafka', 'dispatch'] },
  ]) {
    node.control({ command: 'reorg', depth, length, share: 0.4, events: random.pick(['fewer', 'more']) });
    // The deep one is killed while streams are given its blocks.
    if (depth > 500) await eventually(async () => expect(first?.log.some(isDeep)).toBe(true), 60_000, 20);
    for (const name of killed) {
      await kill(name);
      await pause(random.below(500));
    }
    await agree(clients);
    node.control({ command: 'advance', blocks: 3 });
    l1 += 20;
    node.control({ command: 'setL1', height: l1 });
    await agree(clients);
  }
  for (const { kind, log } of clients) {
    expect(log.filter(({ type }) => type === 'final').length, kind.name).toBeGreaterThan(3);
    expect(repeatedCursors(log), kind.name).toEqual([]);
  }
  await Promise.all(clients.map((client) => client.close()));
  logs.push(...clients);
});

async function ask(query: string): Promise<Response> {
  const response = await fetch(`${service.baseUrl}/api/stream/transfers/?${query}`, {
    headers: { 'api-key': service.demo.api_key },
  });
  expect(response.status, query).toBe(200);
  return response;
}

async function messagesOf(query: string): Promise<StreamMessage[]> {
  const messages: StreamMessage[] = [];
  for await (const message of readLines(await ask(query))) messages.push(message);
  return messages;
}

/** Goes on from a cursor to the newest block. Gives the first message. */
async function goOn(kind: StreamKind, held: Held, cursor: string): Promise<StreamMessage | undefined> {
  let first: StreamMessage | undefined;
  for (let from = cursor; ;) {
    const messages = await messagesOf(`${kind.query}&wait=0&limit=10000&from=${encodeURIComponent(from)}`);
    for (const message of messages) apply(held, message, { least: l1, most: l1 });
    first ??= messages[0];
    const last = messages.at(-1);
    if (last === undefined) return first;
    from = last.cursor;
  }
}

/** What a client held after these messages. */
function replay(messages: readonly StreamMessage[]): Held {
  const held = createHeld();
  for (const message of messages) apply(held, message);
  return held;
}

test(`${CURSORS} random cursors go on where they were, also those on reverted blocks`, async () => {
  let undone = 0;
  for (let i = 0; i < CURSORS; i += 1) {
    const { kind, log } = random.pick(logs);
    // Most of them near the end, where the reorgs are.
    const back = random.below(8) === 0 ? log.length : log.length >> 3;
    const known = log.slice(0, log.length - random.below(back));
    const held = replay(known);
    const first = await goOn(kind, held, known.at(-1)?.cursor ?? '');
    if (first?.type === 'undo') undone += 1;
    expectTruth(kind, held, `cursor ${i} of ${kind.name}`);
  }
  expect(undone).toBeGreaterThan(CURSORS / 20);
});

test('the last valid cursor of an undo goes on behind the last valid block', async () => {
  expect(logs).toHaveLength(kinds.length);
  for (const { kind, log } of logs) {
    const undos = log.flatMap((message, i) => (message.type === 'undo' ? { message, i } : []));
    if (kind.isFinal !== true) expect(undos.length).toBeGreaterThan(3);
    for (const { message, i } of undos.slice(-6)) {
      const held = replay(log.slice(0, i + 1));
      await goOn(kind, held, message.data.last_valid_cursor);
      expectTruth(kind, held, `${kind.name}, ${JSON.stringify(message.data.last_valid)}`);
    }
  }
});

/** Reads events of a stream without `from`; resolves when it has begun. */
async function readNew(kind: StreamKind, signal: AbortSignal) {
  const headers = { 'api-key': service.demo.api_key, accept: 'text/event-stream' };
  const response = await fetch(`${service.baseUrl}/api/stream/transfers/?${kind.query}`, { headers, signal });
  expect(response.status).toBe(200);
  const messages: StreamMessage[] = [];
  const read = async (): Promise<void> => {
    for await (const message of readEvents(response)) messages.push(message);
  };
  const ended = read().catch(() => {});
  return { kind, messages, first: topOf(kind) + 1, ended };
}

test('a stream without `from` has only what is new', async () => {
  await settled();
  const stop = new AbortController();
  const streams = [await readNew(everything, stop.signal), await readNew(onlyFinal, stop.signal)];
  const start = node.ledger.head();
  // A new connection is told the newest final height.
  const [final, ...others] = await messagesOf('wait=0');
  expect([final?.type, others]).toEqual(['final', []]);
  const empty = await ask(`wait=0&from=${final?.cursor}`);
  expect(await empty.text()).toBe('');
  const cursor = empty.headers.get('x-stream-cursor') ?? '';
  const began = performance.now();
  const polling = messagesOf(`wait=30&from=${final?.cursor}`);
  await pause(1000);
  node.control({ command: 'advance', blocks: 1 });
  const polled = await polling;
  expect(performance.now() - began).toBeLessThan(20_000);
  expect(sentLines(polled)).toEqual(oracle.sent(everything, start + 1, start + 1));
  node.control({ command: 'advance', blocks: 3 });
  l1 += 2;
  node.control({ command: 'setL1', height: l1 });
  await settled();
  await eventually(async () => {
    for (const { kind, messages, first } of streams)
      expect(sentLines(messages), kind.name).toEqual(oracle.sent(kind, first, topOf(kind)));
  });
  stop.abort();
  await Promise.all(streams.map(({ ended }) => ended));
  const since = await messagesOf(`wait=0&from=${cursor}`);
  expect(sentLines(since)).toEqual(oracle.sent(everything, start + 1, node.ledger.head()));
});

/** Opens a stream of events of everything from 0. */
async function openStream(apiKey: string, options: RequestOptions = {}): Promise<IncomingMessage> {
  const url = `${service.baseUrl}/api/stream/transfers/?from=0`;
  const headers = { 'api-key': apiKey, accept: 'text/event-stream' };
  return await new Promise((resolve, reject) => {
    get(url, { headers, agent: false, ...options }, resolve).on('error', reject);
  });
}

/**
 * Opens the same stream and takes nothing of it, not even the head of the answer, until `resume`: the kernel gives a client
 * that once read quickly a buffer that can hold the whole stream.
 */
function openUnread(apiKey: string): { resume(): Promise<IncomingMessage> } {
  const { port, hostname } = new URL(service.baseUrl);
  const socket = connect(Number(port), hostname).pause();
  const opened = openStream(apiKey, { agent: undefined, createConnection: () => socket });
  return {
    resume() {
      socket.resume();
      return opened;
    },
  };
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
  // The kernel holds some MB for a client that takes nothing: much less than the stream.
  node.control({ command: 'advance', blocks: 1000 });
  await settled();
  const session = await post('/api/users/auth/login/', {
    username: service.demo.username,
    password: service.demo.password,
  });
  const { token } = z.object({ token: z.string() }).parse(session);
  const authorization = `Bearer ${token}`;
  const made = await post('/api/users/auth/create-api-key/', { name: 'to be deleted' }, { authorization });
  const key = z.object({ id: z.number(), key: z.string() }).parse(made);
  const deleted = lastOf(await openStream(key.key));
  const slow = openUnread(service.demo.api_key);
  const openedAt = performance.now();
  const stopped = lastOf(await openStream(service.demo.api_key));
  await post('/api/users/auth/api-keys/delete/', { key_id: key.id }, { authorization });
  expect((await deleted).last).toMatchObject({ type: 'end', data: { reason: 'limit' } });

  // Longer than a client may take nothing.
  await new Promise((resolve) => setTimeout(resolve, openedAt + 24_000 - performance.now()));
  const { last: end, held } = await lastOf(await slow.resume());
  expect(end).toMatchObject({ type: 'end', data: { reason: 'slow' } });
  expect(held.newest.block).toBeLessThan(node.ledger.head());
  await goOn(everything, held, end.cursor);
  expectTruth(everything, held);

  await service.stop();
  const { last, held: all } = await stopped;
  expect(last).toMatchObject({ type: 'end', data: { reason: 'shutdown' } });
  expectTruth(everything, all);
});

async function post(path: string, body: object, headers: Record<string, string> = {}): Promise<unknown> {
  const response = await fetch(service.baseUrl + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  expect(response.status, path).toBeLessThan(300);
  return await response.json();
}
