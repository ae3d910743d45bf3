import { describe, expect, test } from 'vitest';

import type { Fault } from '../../../support/starknet/faults.ts';
import {
  blockAt,
  jsonOf,
  post,
  rpc,
  withNode,
  type Block,
  type Json,
} from '../../../support/starknet/client.ts';

const BLOCKS = 'starknet_getBlockWithReceipts';

describe('faults', () => {
  const run = (fault: Fault, use: (url: string) => Promise<void>) =>
    withNode({}, async ({ url, faults }) => {
      faults.add(fault);
      await use(url);
    });
  const ask = (url: string) => post(url, { jsonrpc: '2.0', id: 1, method: BLOCKS, params: ['latest'] });

  test('http429 sends Retry-After the given number of times', () =>
    run({ kind: 'http429', retryAfter: 3, times: 2 }, async (url) => {
      const answers = [await ask(url), await ask(url), await ask(url)];
      expect(answers.map(({ status }) => status)).toEqual([429, 429, 200]);
      expect(answers[0]?.headers.get('retry-after')).toBe('3');
    }));

  test('http503 applies to the given methods only', () =>
    run({ kind: 'http503', methods: [BLOCKS] }, async (url) => {
      expect((await ask(url)).status).toBe(503);
      expect((await rpc(url, 'starknet_blockNumber')).result).toBe(50);
    }));

  test('truncated sends half of the JSON', () =>
    run({ kind: 'truncated', times: 1 }, async (url) => {
      const text = await (await ask(url)).text();
      expect(text.length).toBeGreaterThan(1000);
      expect(() => JSON.parse(text)).toThrow();
      expect((await ask(url)).ok).toBe(true);
    }));

  test('hang sends no response', () =>
    run({ kind: 'hang', times: 1 }, async (url) => {
      const given = new AbortController();
      const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: BLOCKS, params: ['latest'] });
      // Which of the two the node takes first is open.
      const both = [1, 2].map(() => fetch(url, { method: 'POST', body, signal: given.signal }));
      expect((await Promise.race(both)).ok).toBe(true);
      expect((await ask(url)).ok).toBe(true);
      given.abort();
      const outcomes = await Promise.allSettled(both);
      expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    }));

  test('latency delays the response', () =>
    run({ kind: 'latency', ms: 120, times: 1 }, async (url) => {
      const began = performance.now();
      await ask(url);
      expect(performance.now() - began).toBeGreaterThan(110);
    }));

  test('null-result applies to the given heights only', () =>
    run({ kind: 'null-result', heights: { from: 30, to: 30 } }, async (url) => {
      const { result } = await rpc(url, BLOCKS, [{ block_number: 30 }]);
      expect(result).toBeNull();
      expect((await blockAt(url, { block_number: 31 })).block_number).toBe(31);
    }));

  test('missing-events and missing-transactions keep the counts, and do not change the chain', async () => {
    const events = (block: Block) => block.transactions.flatMap(({ receipt }) => receipt.events).length;
    await run({ kind: 'missing-events', times: 1 }, async (url) => {
      const short = await blockAt(url, 'latest');
      expect(events(short)).toBe(short.event_count - 1);
      expect(short.transactions).toHaveLength(short.transaction_count);
      const whole = await blockAt(url, 'latest');
      expect([events(whole), whole.event_count]).toEqual([short.event_count, short.event_count]);
    });
    await run({ kind: 'missing-transactions', times: 1 }, async (url) => {
      const short = await blockAt(url, 'latest');
      expect(short.transactions).toHaveLength(short.transaction_count - 1);
      expect((await blockAt(url, 'latest')).transactions).toHaveLength(short.transaction_count);
    });
  });

  test.each(['uncounted-event', 'changed-event', 'swapped-events'] as const)(
    '%s changes events under their true commitment',
    (kind) =>
      run({ kind, times: 1 }, async (url) => {
        const events = (block: Block) =>
          block.transactions.flatMap(({ receipt }) => receipt.events.map((event) => JSON.stringify(event)));
        const spoilt = await blockAt(url, 'latest');
        const whole = await blockAt(url, 'latest');
        expect(spoilt.event_commitment).toBe(whole.event_commitment);
        expect(events(spoilt)).toHaveLength(spoilt.event_count);
        expect(spoilt.event_count).toBe(whole.event_count - (kind === 'uncounted-event' ? 1 : 0));
        expect(events(spoilt)).not.toEqual(events(whole));
        const isReordered = events(spoilt).toSorted().join() === events(whole).toSorted().join();
        expect(isReordered).toBe(kind === 'swapped-events');
      }),
  );

  test('wrong-parent replaces the parent hash', () =>
    run({ kind: 'wrong-parent', times: 1 }, async (url) => {
      expect((await blockAt(url, 'latest')).parent_hash).toBe('0xbad');
      expect((await blockAt(url, 'latest')).parent_hash).toBe(
        (await blockAt(url, { block_number: 49 })).block_hash,
      );
    }));

  test('batch-refused answers a batch with one error, and single calls as usual', () =>
    run({ kind: 'batch-refused' }, async (url) => {
      const calls = [1, 2].map((id) => ({ jsonrpc: '2.0', id, method: BLOCKS, params: ['latest'] }));
      expect(await jsonOf(post(url, calls))).toEqual({
        jsonrpc: '2.0',
        id: null,
        error: { code: -32600, message: expect.any(String) },
      });
      expect((await jsonOf(post(url, calls[0]))).result.block_number).toBe(50);
    }));

  test('error sends the given JSON-RPC error', () =>
    run({ kind: 'error', code: 20, message: 'x', data: { y: 1 }, methods: [BLOCKS] }, async (url) => {
      expect((await rpc(url, BLOCKS, ['latest'])).error).toEqual({ code: 20, message: 'x', data: { y: 1 } });
    }));

  test('two-forks alternates between two forks', () =>
    withNode({}, async ({ url, chain, faults }) => {
      const old = await blockAt(url, 'latest');
      chain?.reorg({ depth: 3 });
      const now = await blockAt(url, { block_number: 50 });
      faults.add({ kind: 'two-forks', methods: [BLOCKS] });
      const seen = [];
      for (let i = 0; i < 4; i++) seen.push((await blockAt(url, { block_number: 50 })).block_hash);
      expect(seen).toEqual([old.block_hash, now.block_hash, old.block_hash, now.block_hash]);
    }));
});

describe('control over HTTP', () => {
  const command = (url: string, body: unknown) => jsonOf(post(`${url}/control`, body));

  test('changes the chain and returns its state', () =>
    withNode({ control: true }, async ({ url }) => {
      expect(await command(url, { command: 'advance', blocks: 3 })).toMatchObject({ head: 53, fork: 0 });
      expect(await command(url, { command: 'reorg', depth: 2, length: 4, events: 'more' })).toMatchObject({
        head: 55,
        fork: 1,
      });
      expect(await command(url, { command: 'switch', fork: 0 })).toMatchObject({ head: 53, fork: 0 });
      expect(await command(url, { command: 'setL1', height: 40 })).toMatchObject({ l1: 40 });
      expect(await command(url, { command: 'setHead', height: 45 })).toMatchObject({
        head: 53,
        servedHead: 45,
      });
      expect((await rpc(url, 'starknet_blockNumber')).result).toBe(45);
      expect(await command(url, { command: 'setHead', height: null })).toMatchObject({ servedHead: 53 });
      expect(await command(url, { command: 'fault', fault: { kind: 'http503', times: 5 } })).toMatchObject({
        faults: [{ fault: { kind: 'http503' }, struck: 0 }],
      });
      expect(await command(url, { command: 'clearFaults' })).toMatchObject({ faults: [] });
      expect(await command(url, { command: 'reorg', depth: 30 })).toMatchObject({
        error: expect.stringContaining('L1'),
      });
      expect(await command(url, { command: 'fly' })).toMatchObject({ error: expect.any(String) });
    }));

  test('returns counts, transfers and balances', () =>
    withNode({ control: true }, async ({ url, ledger, chain }) => {
      const transfers = await jsonOf(fetch(`${url}/control/transfers?from=10&to=12`));
      const wanted = [10, 11, 12].flatMap((height) => ledger.at(height)?.transfers ?? []);
      expect(transfers.map(({ txHash, position, item }: Json) => [txHash, position, item])).toEqual(
        wanted.map(({ txHash, position, item }) => [txHash, position, item]),
      );
      expect(transfers[0].token).toMatch(/^0x[0-9a-f]{64}$/);
      const stats = await jsonOf(fetch(`${url}/control/stats?from=10&to=12`));
      expect([stats.blocks, stats.transfers]).toEqual([3, wanted.length]);
      const counted: number[] = Object.values(stats.byToken);
      expect(counted.reduce((sum, count) => sum + count, 0)).toBe(wanted.length);
      const { token, to } = transfers[0];
      const { balance } = await jsonOf(
        fetch(`${url}/control/balance?token=${token}&account=${to}&height=12`),
      );
      expect(BigInt(balance)).toBeGreaterThan(0n);
      expect(chain?.head()).toBe(50);
    }));

  test('is off by default', () =>
    withNode({}, async ({ url }) => {
      expect((await command(url, { command: 'advance' })).error.code).toBe(-32600);
    }));
});
