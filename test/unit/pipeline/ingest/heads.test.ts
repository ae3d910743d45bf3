import { Registry } from 'prom-client';
import { describe, expect, test, vi } from 'vitest';

import { systemClock } from '../../../../infra/clock.ts';
import { createLogger } from '../../../../infra/log.ts';
import type { IndexedChain } from '../../../../pipeline/ingest/fork.ts';
import { createHeads, startL1Watch } from '../../../../pipeline/ingest/heads.ts';
import { createIngestMetrics } from '../../../../pipeline/ingest/metrics.ts';
import type { IngestDeps, IngestSettings, Lease } from '../../../../pipeline/ingest/ports.ts';
import { RpcError, rpcCodes } from '../../../../pipeline/node/errors.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import { topics } from '../../../../schemas/topics.ts';
import { createWorld } from '../../../simulate/world.ts';

const HEAD_POLL_MS = 250;
const SHORTEST = 50;
const SUBSCRIBED = 1000;

/** The heads of a node on a clock of its own: a wait takes no time, but moves the clock. */
function world({ subscribed }: { subscribed: boolean }) {
  let now = 1_700_000_000_000;
  let duringSleep = (): void => undefined;
  const node = { announce: (): void => undefined, isLive: true, restarts: 0, closed: false };
  const heads = createHeads(
    {
      publisher: { publish: async () => [] },
      metrics: createIngestMetrics(new Registry()),
      settings: { headPollMs: HEAD_POLL_MS } as IngestSettings,
      clock: {
        now: () => now,
        wallTime: () => now,
        random: () => 0,
        turn: async () => undefined,
        async sleep(ms, signal) {
          const action = duringSleep;
          duringSleep = () => undefined;
          if (signal?.aborted !== true) action();
          if (signal?.aborted !== true) now += ms;
        },
      },
      subscribeToHeads: !subscribed
        ? null
        : (onChange) => {
            node.announce = onChange;
            return {
              isLive: () => node.isLive,
              restart: () => void (node.restarts += 1),
              close: () => void (node.closed = true),
            };
          },
    },
    { head: null, at: 0 },
  );
  let height = 0;
  const poll = ({ rises = false } = {}): void => {
    height += rises ? 1 : 0;
    heads.observe({ height, hash: toFelt(BigInt(height + 1)) });
  };
  return {
    node,
    heads,
    /** The node answers a poll with the same head, or the next one. */
    poll,
    /** The node has announced its first head, and serves it. */
    begin: (): void => {
      poll();
      node.announce();
      poll({ rises: true });
      now += 10 * SUBSCRIBED;
    },
    pass: (ms: number): void => void (now += ms),
    /** Waits, and returns for how long. */
    wait: async (during = (): void => undefined, isBehind = false): Promise<number> => {
      const began = now;
      duringSleep = during;
      await heads.wait(new AbortController().signal, { isBehind });
      return now - began;
    },
  };
}

describe('the head of a node that announces it', () => {
  test('is polled once a second, and at once after an announcement', async () => {
    const { node, begin, poll, wait } = world({ subscribed: true });
    begin();
    expect(await wait()).toBe(SUBSCRIBED);
    poll();
    expect(await wait(node.announce)).toBe(0);
    poll({ rises: true });
    expect(await wait()).toBe(SUBSCRIBED);
  });

  test('is polled at once if it was announced before the wait', async () => {
    const { node, begin, wait } = world({ subscribed: true });
    begin();
    node.announce();
    expect(await wait()).toBe(0);
  });

  test('is polled at once also if it was announced long before the wait', async () => {
    const { node, begin, pass, wait } = world({ subscribed: true });
    begin();
    node.announce();
    pass(5 * SUBSCRIBED);
    expect(await wait()).toBe(0);
    expect(await wait()).toBe(SUBSCRIBED);
  });

  test('is polled often, and not without a pause, while it is announced and not there', async () => {
    const { node, begin, poll, wait } = world({ subscribed: true });
    begin();
    expect(await wait(node.announce)).toBe(0);
    const waits = [];
    for (let round = 0; round < 5; round += 1) {
      poll();
      waits.push(await wait(node.announce));
    }
    expect(waits).toEqual([SHORTEST, SHORTEST, SHORTEST, SHORTEST, SHORTEST]);
    poll({ rises: true });
    expect(await wait(node.announce)).toBe(0);
  });

  test('is waited for no longer than a second after an announcement', async () => {
    const { node, begin, poll, wait, pass } = world({ subscribed: true });
    begin();
    node.announce();
    expect(await wait()).toBe(0);
    poll();
    pass(SUBSCRIBED);
    expect(await wait()).toBe(SUBSCRIBED);
    poll();
    expect(await wait(node.announce)).toBe(0);
  });

  test('is polled as without announcements when one is missing, and the node is asked for them again', async () => {
    const { node, begin, poll, wait, pass } = world({ subscribed: true });
    begin();
    poll({ rises: true });
    expect(await wait()).toBe(HEAD_POLL_MS);
    expect(node.restarts).toBe(0);
    pass(SUBSCRIBED);
    await wait();
    expect(node.restarts).toBe(1);
  });

  test('may be announced a little later than it was found', async () => {
    const { node, begin, poll, wait, pass } = world({ subscribed: true });
    begin();
    poll({ rises: true });
    node.announce();
    pass(2 * SUBSCRIBED);
    expect(await wait()).toBe(SUBSCRIBED);
    expect(node.restarts).toBe(0);
  });

  test.each([
    ['there is no subscription', { subscribed: false }, true],
    ['the subscription is not confirmed', { subscribed: true }, false],
  ])('is polled at the set interval where %s', async (_where, options, isLive) => {
    const { node, poll, wait } = world(options);
    node.isLive = isLive;
    poll();
    expect(await wait()).toBe(HEAD_POLL_MS);
  });

  test('is polled at the set interval until the first announcement, and the node is not asked again', async () => {
    const { node, poll, wait } = world({ subscribed: true });
    for (let round = 0; round < 20; round += 1) {
      poll({ rises: true });
      expect(await wait()).toBeLessThanOrEqual(HEAD_POLL_MS);
    }
    expect(node.restarts).toBe(0);
    node.announce();
    poll({ rises: true });
    expect(await wait()).toBe(SUBSCRIBED);
  });

  test('is asked for once after a silence, not for every block', async () => {
    const { node, begin, poll, wait } = world({ subscribed: true });
    begin();
    for (let round = 0; round < 50; round += 1) {
      poll({ rises: true });
      await wait();
    }
    expect(node.restarts).toBe(1);
  });

  test('whose blocks the node does not serve yet is polled at the set interval', async () => {
    const { node, begin, poll, wait } = world({ subscribed: true });
    begin();
    node.announce();
    poll({ rises: true });
    expect(await wait(undefined, true)).toBeLessThanOrEqual(HEAD_POLL_MS);
  });

  test('is waited for also if it is announced while the one before it was not', async () => {
    const { node, begin, poll, wait, pass } = world({ subscribed: true });
    begin();
    poll({ rises: true });
    pass(SUBSCRIBED / 2);
    node.announce();
    expect(await wait()).toBe(0);
    poll();
    expect(await wait()).toBe(SHORTEST);
  });

  test('is no longer listened for once closed', () => {
    const { node, heads } = world({ subscribed: true });
    heads.close();
    expect(node.closed).toBe(true);
  });
});

describe('the height accepted on L1', () => {
  test('rises again after the node has once answered one that is not', async () => {
    const heights = { answered: 1000, final: 50 };
    const hashOf = (height: number) => toFelt(BigInt(height + 1));
    let final = 10;
    const stored: number[] = [];
    const lease = { signal: new AbortController().signal } as Lease;
    const deps = {
      node: {
        l1Accepted: async () => ({ height: heights.answered, hash: hashOf(heights.answered) }),
        getBlockHeader: async (height: number) => ({
          hash: hashOf(height),
          status: height <= heights.final ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2',
        }),
      },
      store: { setFinal: async (_: Lease, point: { height: number }) => void stored.push(point.height) },
      blockLog: { ends: async () => [] },
      publisher: { publish: async () => [{ partition: 0, offset: 0 }] },
      clock: { ...systemClock, sleep: async () => await new Promise((resolve) => setImmediate(resolve)) },
      log: createLogger('test', 'silent'),
      metrics: createIngestMetrics(new Registry()),
      settings: { l1PollMs: 1 },
    } as unknown as IngestDeps;
    const indexed = {
      cursor: () => 200,
      revertingFrom: () => null,
      final: () => ({ height: final, hash: hashOf(final) }),
      hashAt: hashOf,
      finalized: ({ height }: { height: number }) => void (final = height),
    } as unknown as IndexedChain;
    const watch = startL1Watch(deps, { lease, l1Requested: async () => undefined }, final);
    await expect.poll(() => watch.newest()?.height).toBe(1000);
    heights.answered = heights.final;
    await watch.apply(indexed);
    await expect.poll(() => watch.newest()?.height).toBe(50);
    await watch.apply(indexed);
    expect(stored).toEqual([50]);
    watch.stop();
  });

  test('becomes final without an alarm although a node at the same address lacks its block', async () => {
    const world = createWorld({ seed: 1, blocks: 60 });
    const raised = vi.spyOn(world.store, 'raiseAlarm');
    let isLacking = false;
    world.startIngester({
      node: {
        getBlockHeader: async (id) => {
          const height = typeof id === 'number' ? id : world.chain.head();
          if (isLacking) {
            isLacking = false;
            throw new RpcError('header', rpcCodes.blockNotFound, 'Block not found', null);
          }
          const { hash, parent_hash: parentHash, timestamp } = world.chain.at(height)!.body;
          return { height, hash, parentHash, timestamp, status: 'ACCEPTED_ON_L1', transactionCount: 0 };
        },
      },
    });
    await world.clock.run(10_000);
    isLacking = true;
    world.chain.acceptOnL1(45);
    await world.clock.run(10_000);
    const chunks = await world.store.chunks();
    expect(chunks.find(({ name }) => name === 'live')?.finalHeight).toBe(45);
    expect(isLacking).toBe(false);
    expect(raised).not.toHaveBeenCalled();
  });

  test('makes no block final while it is below the first one', async () => {
    const world = createWorld({ seed: 1, blocks: 60 });
    const known = new Set<number | null>();
    world.chain.acceptOnL1(20);
    world.startIngester({
      settings: { indexFrom: 40, leaseMs: 60_000 },
      node: {
        l1Accepted: async (knownHeight) => {
          known.add(knownHeight);
          const { height, hash } = world.chain.at(world.chain.l1())!.body;
          return { height, hash };
        },
      },
    });
    const accepted = () =>
      world.broker
        .messages(topics.chainStatus)
        .flatMap((message) =>
          message.type === 'l1.accepted' ? [[message.height, message.final?.height]] : [],
        );
    await world.clock.run(10_000);
    expect(accepted()).toEqual([[20, undefined]]);
    world.chain.acceptOnL1(45);
    await world.clock.run(10_000);
    expect(accepted()).toEqual([
      [20, undefined],
      [45, 45],
    ]);
    expect([...known]).toEqual([null, 20, 45]);
  });
});
