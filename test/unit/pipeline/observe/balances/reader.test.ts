import { pino } from 'pino';
import { expect, it, vi } from 'vitest';

import { Releasers } from '../../../../../infra/lifecycle.ts';
import { createMetrics } from '../../../../../infra/metrics.ts';
import { startBalanceReader } from '../../../../../pipeline/observe/balances/reader.ts';
import type { FunctionCall } from '../../../../../pipeline/node/types.ts';
import type { Observer } from '../../../../../pipeline/observe/observer.ts';
import { startLoop } from '../../../../../infra/loop.ts';
import { AppError } from '../../../../../schemas/errors.ts';
import { toFelt, ZERO_FELT } from '../../../../../schemas/felt.ts';

const token = toFelt(7n);

interface Published {
  readonly topic: string;
  readonly account: string;
}

/** A reader whose node answers one call of many pairs after another, as the test lets it. */
function world({
  balanceOf = () => 1n,
  moved = [],
  callsPerSecond = 1_000_000,
  fails,
  hangs = () => fails === undefined,
}: {
  balanceOf?: (account: bigint) => bigint;
  moved?: readonly string[];
  callsPerSecond?: number;
  /** Whether a call of these pairs fails. */
  fails?: (pairs: readonly FunctionCall[]) => boolean;
  /** Whether it waits to be answered by the test; default: every call does unless `fails` is given. */
  hangs?: (pairs: readonly FunctionCall[]) => boolean;
} = {}) {
  const published: Published[] = [];
  const calls: {
    accounts: bigint[];
    signal: AbortSignal | undefined;
    priority: number;
    answer: () => void;
  }[] = [];
  const stopping = new AbortController();
  const metrics = createMetrics('observe');
  const fail = (error: unknown): never => {
    throw error;
  };
  const observer: Observer = {
    name: 'balances',
    pool: {} as Observer['pool'],
    log: pino({ level: 'silent' }),
    publisher: {
      publish: async (topic: { name: string }, messages: readonly { value: { account: string } }[]) => {
        published.push(...messages.map(({ value }) => ({ topic: topic.name, account: value.account })));
        return [];
      },
      close: async () => {},
    } as unknown as Observer['publisher'],
    now: () => 1000,
    pollMs: 1,
    retryWhileUnavailable: async (work) => await work(),
    signal: stopping.signal,
    fail,
    releasers: new Releasers(fail),
    consume: async () => {},
    loop: (round) =>
      startLoop({
        round: async () => ((await round()) ? 0 : 1000),
        retryWhileUnavailable: async (work) => await work(),
        onFatal: fail,
      }),
  };
  const reader = startBalanceReader(observer, {
    node: {
      callMany: async (requests, _, { signal, priority = 0 } = {}) => {
        const { promise, resolve } = Promise.withResolvers<void>();
        const accounts = requests.map(({ calldata: [account = ZERO_FELT] }) => BigInt(account));
        calls.push({ accounts, signal, priority, answer: resolve });
        if (hangs(requests)) await promise;
        else if (fails?.(requests) === true)
          throw new AppError('NODE_UNREACHABLE', 'time-out', { retryable: true });
        return accounts.map((account) => ({
          ok: true as const,
          value: [toFelt(balanceOf(account)), ZERO_FELT],
        }));
      },
    },
    callsPerSecond,
    newestBlock: async () => ({ height: 1, hash: toFelt(1n) }),
    movedPairs: async () => new Set(moved),
    l1Height: async () => null,
    metrics,
  });
  return { reader, calls, metrics, published, stop: () => stopping.abort(), releasers: observer.releasers };
}

it('reads the balance of a second caller in the next call, however many the first waits for', async () => {
  const { reader, calls, metrics } = world();
  for (let account = 1n; account <= 6000n; account += 1n)
    reader.request({ account: toFelt(account), token, caller: 'a', requestedAt: 1000 });
  reader.wake();
  await vi.waitFor(() => expect(calls).toHaveLength(4));
  reader.request({ account: toFelt(1_000_000n), token, caller: 'b', requestedAt: 1000 });
  calls[0]?.answer();
  await vi.waitFor(() => expect(calls).toHaveLength(5));
  const [next] = calls.slice(4);
  expect(next?.accounts).toHaveLength(50);
  expect(next?.accounts).toContain(1_000_000n);
  expect(await metrics.metrics()).toMatch(/tds_balance_reads_total\{.*outcome="dropped".*\} 4000/);
});

it('overtakes the calls to the node that read metadata', async () => {
  const { reader, calls } = world();
  reader.request({ account: toFelt(1n), token, caller: 'a', requestedAt: 1000 });
  reader.wake();
  await vi.waitFor(() => expect(calls).toHaveLength(1));
  expect(calls[0]?.priority).toBeGreaterThan(0);
});

it('keeps for ever what a pair has, and that a pair that moved has nothing; nothing else', async () => {
  const [has, hadOnce, never] = [toFelt(1n), toFelt(2n), toFelt(3n)];
  const { reader, calls, published } = world({
    balanceOf: (account) => (account === 1n ? 5n : 0n),
    moved: [`${hadOnce}:${token}`],
  });
  for (const account of [has, hadOnce, never])
    reader.request({ account, token, caller: 'a', requestedAt: 1000 });
  reader.wake();
  await vi.waitFor(() => expect(calls).toHaveLength(1));
  calls[0]?.answer();
  await vi.waitFor(() => expect(published).toHaveLength(3));
  expect(new Map(published.map(({ topic, account }) => [account, topic]))).toEqual(
    new Map([
      [has, 'balances'],
      [hadOnce, 'balances'],
      [never, 'unmoved-balances'],
    ]),
  );
});

it('gives a batch its whole time after a wait for the rate limit, which a stop ends', async () => {
  vi.useFakeTimers();
  try {
    const { reader, calls, stop, releasers } = world({ callsPerSecond: 2 });
    for (let account = 1n; account <= 200n; account += 1n)
      reader.request({ account: toFelt(account), token, caller: 'a', requestedAt: 1000 });
    reader.wake();
    // The four batches of 50 share the rate.
    for (let waitedMs = 0; calls.length === 0 && waitedMs < 110_000; waitedMs += 500)
      await vi.advanceTimersByTimeAsync(500);
    expect(calls).toHaveLength(1);
    expect(calls[0]?.signal?.aborted).toBe(false);
    stop();
    expect(calls[0]?.signal?.aborted).toBe(true);
    calls[0]?.answer();
    await releasers.releaseAll();
    expect(calls).toHaveLength(1);
  } finally {
    vi.useRealTimers();
  }
});

it('reads every other pair of a batch that one pair fails, and further pairs of its token alone', async () => {
  const slowToken = toFelt(8n);
  const { reader, calls, published } = world({
    fails: (pairs) => pairs.some(({ contract }) => contract === slowToken),
  });
  const ask = (account: bigint, of = token): void =>
    reader.request({ account: toFelt(account), token: of, caller: `${account}`, requestedAt: 1000 });
  for (let account = 1n; account <= 40n; account += 1n) ask(account, account === 20n ? slowToken : token);
  reader.wake();
  await vi.waitFor(() => expect(published).toHaveLength(39));
  expect(published.map(({ account }) => BigInt(account))).not.toContain(20n);
  await vi.waitFor(() => expect(calls.at(-1)?.accounts).toEqual([20n]));

  const before = calls.length;
  for (let account = 41n; account <= 80n; account += 1n) ask(account, account === 60n ? slowToken : token);
  reader.wake();
  await vi.waitFor(() => expect(published).toHaveLength(78));
  expect(
    calls
      .slice(before)
      .map(({ accounts }) => accounts.length)
      .toSorted((a, b) => a - b),
  ).toEqual([1, 39]);
});

it('reads all pairs from a node that refuses batches of more than 20 calls', async () => {
  const { reader, published } = world({ fails: (pairs) => pairs.length > 20 });
  for (let account = 1n; account <= 200n; account += 1n)
    reader.request({ account: toFelt(account), token, caller: 'a', requestedAt: 1000 });
  reader.wake();
  await vi.waitFor(() => expect(published).toHaveLength(200));
});

it.each([
  ['read alone', 1, 100],
  ['in the parts of a failed batch', 50, 0],
])('reads the pair of a second caller at once while calls of a token %s hang', async (_, first, more) => {
  const slowToken = toFelt(8n);
  const isSlow = (pairs: readonly FunctionCall[]): boolean =>
    pairs.some(({ contract }) => contract === slowToken);
  const { reader, calls, published } = world({
    fails: isSlow,
    hangs: (pairs) => isSlow(pairs) && calls.length > 1,
  });
  const ask = (from: number, count: number): void => {
    for (let account = from; account < from + count; account += 1)
      reader.request({ account: toFelt(BigInt(account)), token: slowToken, caller: 'a', requestedAt: 1000 });
    reader.wake();
  };
  ask(1, first);
  await vi.waitFor(() => expect(calls).not.toEqual([]));
  ask(100, more);
  await vi.waitFor(() => expect(calls.length).toBeGreaterThanOrEqual(3));
  reader.request({ account: toFelt(1_000_000n), token, caller: 'b', requestedAt: 1000 });
  reader.wake();
  await vi.waitFor(() => expect(published).toMatchObject([{ account: toFelt(1_000_000n) }]));
});
