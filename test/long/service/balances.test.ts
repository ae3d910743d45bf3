import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { createKafka } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { tokenTable, tokens } from '../../../infra/embedded/starknet/tokens.ts';
import { parseFelt, toFelt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { createRandom } from '../../support/random.ts';
import { eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { tds } from '../../support/tds.ts';
import { hex } from '../../support/truth.ts';

/**
 * Balances and their histories through the whole service, compared with the simulated node's own ledger at the same height,
 * which is computed from the intended transfers, not from events.
 */

const { at: tokenAt } = tokenTable();

const balance = z.object({
  success: z.literal(true),
  data: z.object({
    account_address: z.string(),
    token_address: z.string(),
    balance: z.string(),
    last_updated: z.string(),
    stale: z.literal(true).optional(),
  }),
});
const ofAccount = z.object({
  count: z.number(),
  complete: z.literal(false).optional(),
  data: z.array(z.object({ id: z.number(), token: z.object({ address: z.string() }), balance: z.string() })),
});
const history = z.object({
  count: z.number(),
  complete_from: z.string().nullable().optional(),
  data: z.array(
    z.object({
      time: z.string(),
      block_number: z.number(),
      event_index: z.number(),
      balance: z.string(),
      token_price_usd: z.number().nullable(),
      balance_usd: z.number().nullable(),
    }),
  ),
});

const totals = {
  total_usd: z.number(),
  tracked_total_usd: z.number(),
  holdings_count: z.number(),
  untracked_count: z.number(),
};
const portfolio = z.object({
  complete: z.literal(false).optional(),
  data: z.object({
    as_of: z.string(),
    ...totals,
    holdings: z.array(
      z.object({
        token_address: z.string(),
        balance: z.string(),
        decimals: z.number(),
        balance_usd: z.number().nullable(),
        token_price_usd: z.number().nullable(),
      }),
    ),
  }),
});
const portfolioPoint = z.object({ timestamp: z.string(), ...totals });
const portfolioHistory = z.object({
  count: z.number(),
  complete: z.literal(false).optional(),
  complete_from: z.string().nullable().optional(),
  data: z.array(portfolioPoint),
});

const GAP = { from: 5, to: 8 };
/** Long enough for the chain to span hours and days, and short enough for it to end before today. */
const BLOCK_SECONDS = 2400;
const HOUR = 3_600_000;
const ALWAYS = 'start_time=2000-01-01';

describe('balances of a simulated chain', () => {
  const random = createRandom(85);
  let own: Isolated;
  let node: SimulatedNode;
  let service: RunningService;
  let dataDir: string;

  const head = (): number => node.ledger.head();
  const chain = () => {
    if (node.chain === null) throw new Error('no simulated chain');
    return node.chain;
  };
  /** The node's ledger: the balance after the block at a height. */
  const truth = (account: bigint, token: bigint, height = head()): bigint => {
    const [holder, known] = [chain().source.actors.find(account), tokenAt(token)];
    if (holder === null || known === null) return 0n;
    return chain().balances.balance(chain().fork(), height, known, holder, null);
  };
  const get = async <T>(path: string, shape: z.ZodType<T>): Promise<T> => {
    const { status, json } = await service.get(path);
    expect(status, `${path}: ${JSON.stringify(json)}`).toBe(200);
    return shape.parse(json);
  };
  const upToDate = (): Promise<void> =>
    eventually(async () => {
      const { headers } = await service.get('/api/indexer/progress/');
      expect(headers.get('x-indexed-block')).toBe(String(head()));
    });
  const all = () => Array.from({ length: head() + 1 }, (_, height) => node.transfersAt(height)).flat();
  const isCounted = ({ standard }: { standard: string }): boolean => standard !== 'unknown';
  /** Distinct pairs of account and token with a transfer. */
  const pairs = (): { account: bigint; token: bigint }[] => {
    const found = new Map<string, { account: bigint; token: bigint }>();
    for (const { from, to, token } of all().filter(isCounted)) {
      for (const account of [from, to]) {
        if (account !== 0n) found.set(`${account}:${token}`, { account, token });
      }
    }
    return [...found.values()];
  };
  const someOf = <T>(list: readonly T[], count: number): T[] =>
    Array.from({ length: count }, () => random.pick(list));
  const keyOf = ({ account, token }: { account: bigint; token: bigint }): string =>
    `account_address=${hex(account)}&token_address=${hex(token)}`;

  /** The balance lists of these accounts equal the node's ledger, pair for pair. */
  const expectAccounts = async (accounts: readonly bigint[]): Promise<void> => {
    const touched = pairs();
    for (const account of accounts) {
      await eventually(async () => {
        const { data, count, complete } = await get(
          `/api/account-balances/?account_address=${hex(account)}`,
          ofAccount,
        );
        const expected = touched
          .filter((pair) => pair.account === account)
          .map(({ token }) => `${hex(token)} ${truth(account, token)}`);
        expect(data.map((row) => `${row.token.address} ${row.balance}`).toSorted()).toEqual(
          expected.toSorted(),
        );
        expect(count).toBe(expected.length);
        expect(complete).toBe(undefined);
      });
    }
  };
  /** Portfolios of random accounts, now and at random times, and their histories. */
  const expectPortfolios = async (count: number): Promise<void> => {
    for (const [i, account] of someOf(accounts(), count).entries()) {
      await eventually(async () => {
        await expectPortfolio(account, null);
        await expectPortfolio(account, someTime());
      });
      if (i % 3 === 0) await expectPortfolioHistory(account);
    }
  };
  const expectBalance = async (pair: { account: bigint; token: bigint }, query = ''): Promise<void> => {
    const { data } = await get(`/api/balance/?${keyOf(pair)}${query}`, balance);
    const seen = { ...pair, balance: data.balance, stale: data.stale };
    expect(seen).toEqual({ ...pair, balance: String(truth(pair.account, pair.token)), stale: undefined });
  };
  /** A line per transfer of the pair with the balance after it, computed forward from the node's ledger. */
  const trueHistory = ({ account, token }: { account: bigint; token: bigint }, from = 0): string[] => {
    const lines: string[] = [];
    for (let height = from; height <= head(); height += 1) {
      let held = height === 0 ? 0n : truth(account, token, height - 1);
      for (const row of node.transfersAt(height)) {
        if (row.token !== token || (row.from !== account && row.to !== account)) continue;
        const amount = row.standard === 'erc721' ? 1n : row.amount;
        held += (row.to === account ? amount : 0n) - (row.from === account ? amount : 0n);
        lines.push(`${height} ${row.item * 1_048_576 + row.position} ${held}`);
      }
      expect(held).toBe(truth(account, token, height));
    }
    return lines;
  };
  const expectHistory = async (pair: { account: bigint; token: bigint }): Promise<void> => {
    const { data, count, complete_from } = await get(
      `/api/balance-history/?${keyOf(pair)}&${ALWAYS}`,
      history,
    );
    const lines = data.map((row) => `${row.block_number} ${row.event_index} ${row.balance}`);
    expect(lines).toEqual(trueHistory(pair));
    expect(count).toBe(lines.length);
    expect(complete_from).toBe(undefined);
  };
  const blockTime = (height: number): number => Number(node.ledger.at(height)?.header['timestamp']) * 1000;
  /** The newest block at or before a time. */
  const heightAt = (time: number): number =>
    Array.from({ length: head() + 1 }, (_, height) => height).findLast(
      (height) => blockTime(height) <= time,
    ) ?? -1;
  /** The non-zero balances of an account after a block, by the node's ledger. */
  const trueHoldings = (account: bigint): ((height: number) => Map<string, bigint>) => {
    const tokensOf = pairs().flatMap(({ account: of, token }) => (of === account ? [token] : []));
    return (height) =>
      new Map(
        tokensOf.flatMap((token): [string, bigint][] => {
          const held = height < 0 ? 0n : truth(account, token, height);
          return held === 0n ? [] : [[hex(token), held]];
        }),
      );
  };
  const portfolioAt = async (account: bigint, time: number | null) =>
    await get(
      `/api/portfolio/?account_address=${hex(account)}${time === null ? '' : `&at_time=${new Date(time).toISOString()}`}`,
      portfolio,
    );
  const expectPortfolio = async (account: bigint, time: number | null): Promise<void> => {
    const { data, complete } = await portfolioAt(account, time);
    const expected = trueHoldings(account)(time === null ? head() : heightAt(time));
    expect(new Map(data.holdings.map((row) => [row.token_address, BigInt(row.balance)]))).toEqual(expected);
    expect(complete).toBe(undefined);
    const unpriced = data.holdings.filter((row) => row.token_price_usd === null);
    expect([data.holdings_count, data.untracked_count]).toEqual([expected.size, unpriced.length]);
    if (time !== null) expect(data.as_of).toBe(new Date(time).toISOString());
  };
  /** All full hours of the chain, and some before it. */
  const hours = (): number[] => {
    const from = Math.ceil(blockTime(0) / HOUR) - 3;
    return Array.from(
      { length: Math.floor(blockTime(head()) / HOUR) - from + 1 },
      (_, i) => (from + i) * HOUR,
    );
  };
  const historyOf = async (account: bigint, times: readonly number[]) =>
    await get(
      `/api/portfolio-history/?account_address=${hex(account)}&start_time=${new Date(times[0] ?? 0).toISOString()}&end_time=${new Date(times.at(-1) ?? 0).toISOString()}`,
      portfolioHistory,
    );
  /** One point per hour, each equal to the portfolio at that time. */
  const expectPortfolioHistory = async (account: bigint): Promise<void> => {
    const times = hours();
    const { data, complete, complete_from } = await historyOf(account, times);
    const holdingsAt = trueHoldings(account);
    expect(data.map(({ timestamp, holdings_count: held }) => `${Date.parse(timestamp)} ${held}`)).toEqual(
      times.map((time) => `${time} ${holdingsAt(heightAt(time)).size}`),
    );
    expect([complete, complete_from]).toEqual([undefined, undefined]);
    await expectSamePoints(account, someOf(data, 3));
  };
  const expectSamePoints = async (
    account: bigint,
    points: readonly z.infer<typeof portfolioPoint>[],
  ): Promise<void> => {
    for (const { timestamp, ...figures } of points)
      expect((await portfolioAt(account, Date.parse(timestamp))).data).toMatchObject(figures);
  };
  const someTime = (from = -1, to = head() + 2): number =>
    blockTime(0) + (from + (random.below(1000) * (to - from)) / 1000) * BLOCK_SECONDS * 1000;
  const accounts = (): bigint[] => [...new Set(pairs().map(({ account }) => account))];
  const tokenOf = (key: string): bigint => tokens.find((token) => token.key === key)?.address ?? 0n;
  const pairOf = (token: bigint): { account: bigint; token: bigint } => {
    const found = pairs().find((pair) => pair.token === token);
    if (found === undefined) throw new Error('nobody holds it');
    return found;
  };

  const openKafka = () =>
    createKafka({
      brokers: own.env.KAFKA_BROKERS.split(','),
      clientId: 'test',
      topicPrefix: own.env.KAFKA_TOPIC_PREFIX,
      log: createLogger('test', 'silent'),
    });

  beforeAll(async () => {
    own = await isolated();
    dataDir = mkdtempSync(join(tmpdir(), 'tds-balances-'));
    node = await createSimulatedNode({
      seed: 'balances',
      manual: true,
      initialHead: 60,
      blockSeconds: BLOCK_SECONDS,
      genesisTime: Math.floor(Date.now() / 1000) - 200 * BLOCK_SECONDS,
      l1: { lag: 30, step: 5 },
    });
    // Backfill is blocked at some heights at first.
    node.control({
      command: 'fault',
      fault: { kind: 'http503', methods: ['starknet_getBlockWithReceipts'], heights: GAP },
    });
    service = await startService(dataDir, {
      ...own.env,
      STARKNET_RPC_URL: node.url,
      INDEX_FROM: '0',
      BACKFILL_CHUNK_BLOCKS: '10',
      PORT: String(await freePort()),
    });
  });
  afterAll(async () => {
    await service?.stop();
    await node?.close();
    await own?.drop();
    rmSync(dataDir, { recursive: true, force: true });
  });

  test('unknown balances are read from the chain or omitted while backfill is unfinished', async () => {
    await upToDate();
    const start = GAP.to + 2;
    await eventually(async () => {
      const { json } = await service.get('/api/indexer/progress/');
      const { chunks } = z
        .object({ chunks: z.array(z.object({ name: z.string(), percent: z.number().nullable() })) })
        .parse(json);
      expect(chunks.filter(({ percent }) => percent !== null && percent < 1)).toHaveLength(1);
    });

    const isSeen = (account: bigint, token: string): boolean =>
      all().some(
        (row) =>
          hex(row.token) === token &&
          (row.from === account || row.to === account) &&
          (row.block < GAP.from || row.block > GAP.to),
      );
    for (const account of someOf(accounts(), 4)) {
      const path = `/api/account-balances/?account_address=${hex(account)}`;
      // Requested balances appear later; every balance that appears must be correct.
      await eventually(async () => {
        const { data, complete } = await get(path, ofAccount);
        expect(complete).toBe(false);
        for (const row of data) {
          expect(row.balance).toBe(String(truth(account, BigInt(row.token.address))));
        }
        const readable = pairs().filter(
          (pair) =>
            pair.account === account &&
            tokenAt(pair.token)?.standard !== 'erc1155' &&
            tokenAt(pair.token)?.key !== 'decimals-only' &&
            isSeen(account, hex(pair.token)),
        );
        expect(data.length).toBe(readable.length);
      });
    }
    for (const pair of someOf(
      pairs().filter(
        ({ token }) => tokenAt(token)?.standard === 'erc20' && token !== tokenOf('decimals-only'),
      ),
      12,
    )) {
      await expectBalance(pair);
      const { data, complete_from } = await get(`/api/balance-history/?${keyOf(pair)}&${ALWAYS}`, history);
      expect(typeof complete_from).toBe('string');
      // The blocked chunk may have indexed some of its later blocks: `complete_from` says from when on balances are known.
      const from = data[0]?.block_number ?? head() + 1;
      expect(from).toBeGreaterThanOrEqual(start - 1);
      expect(data.map((row) => `${row.block_number} ${row.event_index} ${row.balance}`)).toEqual(
        trueHistory(pair, start),
      );
    }
    for (const account of someOf(accounts(), 3)) {
      // Before the gap everything is known from the first block on, as far as whole batches were read; in it nothing is; after
      // it what was read is.
      await expectPortfolio(account, blockTime(1));
      const lost = await portfolioAt(account, blockTime(GAP.to - 1));
      expect([lost.complete, lost.data.holdings, lost.data.total_usd]).toEqual([false, [], 0]);
      await portfolioAt(account, null);
      const isTold = (token: string): boolean =>
        tokenAt(BigInt(token))?.standard !== 'erc1155' && BigInt(token) !== tokenOf('decimals-only');
      await eventually(async () => {
        for (const time of [blockTime(start), someTime(start, 60), null]) {
          const { data, complete } = await portfolioAt(account, time);
          const expected = trueHoldings(account)(time === null ? head() : heightAt(time));
          for (const row of data.holdings) expect(row.balance).toBe(String(expected.get(row.token_address)));
          expect(complete).toBe(false);
          // One that only the blocks of the gap touched is not known of.
          const known = [...expected.keys()].filter((token) => isTold(token) && isSeen(account, token));
          expect(data.holdings.map((row) => row.token_address)).toEqual(expect.arrayContaining(known));
        }
      });
      const times = hours();
      const past = await historyOf(account, times);
      const shown = new Set(past.data.map(({ timestamp }) => Date.parse(timestamp)));
      const missing = times.filter((time) => !shown.has(time));
      expect(missing.length).toBeGreaterThan(0);
      for (const time of missing) {
        expect(heightAt(time)).toBeGreaterThan(1);
        expect(heightAt(time)).toBeLessThanOrEqual(GAP.to + 1);
      }
      expect(past.complete_from).toBe(new Date(Math.max(...missing) + HOUR).toISOString());
      await expectSamePoints(account, someOf(past.data, 5));
    }
    const items = pairOf(tokenOf('items'));
    const refused = await service.get(`/api/balance/?${keyOf(items)}`);
    expect(refused.status).toBe(503);
    const mute = await service.get(`/api/balance/?${keyOf(pairOf(tokenOf('decimals-only')))}`);
    expect(mute.status).toBe(400);
  });

  test('every balance and history row equals the ledger once all blocks are indexed', async () => {
    node.control({ command: 'clearFaults' });
    await eventually(async () => {
      const { json } = await service.get('/api/indexer/progress/');
      const { totals } = z.object({ totals: z.object({ transfers: z.number() }) }).parse(json);
      expect(totals.transfers).toBe(all().length);
    });
    await expectAccounts(someOf(accounts(), 12));
    for (const pair of someOf(pairs(), 25)) {
      await expectBalance(pair);
      await expectHistory(pair);
    }
    for (const key of ['items', 'items-legacy', 'decimals-only', 'silent', 'usdc', 'foxes'])
      await expectHistory(pairOf(tokenOf(key)));
    await expectBalance(pairOf(tokenOf('decimals-only')));
    await expectPortfolios(12);
  });

  test('portfolio at a time values the balances at the prices of that time', async () => {
    const kafka = openKafka();
    const publisher = kafka.publisher();
    const priceOf: Record<string, [string, number][]> = {
      strk: [
        ['0.125', someTime(5, 20)],
        ['0.5', someTime(30, 40)],
      ],
      usdc: [['0.9999', someTime(10, 15)]],
    };
    const published = Object.entries(priceOf).flatMap(([key, prices]) =>
      prices.map(([price, at]) => ({ token: hex(tokenOf(key)), price, at: Math.floor(at) })),
    );
    await publisher.publish(
      topics.prices,
      published.map(({ token, price, at }) => ({
        key: token,
        value: {
          type: 'price.observed' as const,
          v: 1 as const,
          token: parseFelt(token) ?? toFelt(0n),
          price,
          source: 'test',
          confidence: null,
          observed_at: at,
        },
      })),
    );
    await publisher.close();
    await kafka.close();
    const holders = accounts().filter((account) =>
      ['strk', 'usdc'].every((key) => truth(account, tokenOf(key)) > 0n),
    );
    expect(holders.length).toBeGreaterThan(2);
    for (const account of someOf(holders, 6)) {
      const time = someTime(0, 60);
      await eventually(async () => {
        const { data } = await portfolioAt(account, time);
        let worth = 0;
        for (const row of data.holdings) {
          const price = published.findLast(({ token, at }) => token === row.token_address && at <= time);
          expect(row.token_price_usd).toBe(price === undefined ? null : Number(price.price));
          const usd =
            price === undefined ? null : (Number(row.balance) / 10 ** row.decimals) * Number(price.price);
          if (usd === null) expect(row.balance_usd).toBe(null);
          else expect(row.balance_usd).toBeCloseTo(usd, 6);
          worth += usd ?? 0;
        }
        expect(data.total_usd).toBeCloseTo(worth, 6);
        expect(data.tracked_total_usd).toBe(data.total_usd);
        const values = data.holdings.map((row) => row.balance_usd ?? -1);
        expect(values).toEqual(values.toSorted((a, b) => b - a));
      });
      await expectPortfolioHistory(account);
    }
    const [past] = holders;
    const { data } = await historyOf(past ?? 0n, hours());
    expect(new Set(data.map((point) => point.total_usd)).size).toBeGreaterThan(2);
  });

  test('balance follows from the last read and the blocks since, also when a reorg removes the block of the read', async () => {
    const watched = someOf(pairs(), 15);
    for (const pair of watched) await expectBalance(pair, '&force_refresh=true');
    node.control({ command: 'advance', blocks: 9 });
    await upToDate();
    for (const pair of watched) await expectBalance(pair, '&max_age=100000');
    for (const pair of watched) await expectBalance(pair, '&force_refresh=true');

    const gone = pairs();
    node.control({ command: 'reorg', depth: 7, length: 5, share: 0.5, events: 'fewer' });
    node.control({ command: 'advance', blocks: 4 });
    await upToDate();
    await eventually(async () => {
      for (const pair of watched) await expectBalance(pair, '&max_age=100000');
    });
    for (const pair of watched) await expectHistory(pair);
    // Pairs that only orphaned blocks touched are not listed.
    const left = new Set(pairs().map(keyOf));
    const orphaned = gone.filter((pair) => !left.has(keyOf(pair)));
    await expectAccounts([...new Set(orphaned.map(({ account }) => account))].slice(0, 6));
    await expectAccounts(someOf(accounts(), 6));
    await expectPortfolios(6);
    for (const { account } of watched.slice(0, 4)) await expectPortfolioHistory(account);
  });

  test('a batch of twenty pairs reports failures next to balances', async () => {
    const good = someOf(pairs(), 17);
    const body = [
      ...good.map(({ account, token }) => ({ account_address: hex(account), token_address: hex(token) })),
      { account_address: '0xZZ', token_address: '0x1' },
      { account_address: '0x1', token_address: '' },
      { account_address: '0x2', token_address: `0x${'f'.repeat(64)}` },
    ];
    const response = await fetch(`${service.baseUrl}/api/balances/`, {
      method: 'POST',
      headers: { 'api-key': service.demo.api_key, 'content-type': 'application/json' },
      body: JSON.stringify({ balances: body }),
    });
    expect(response.status).toBe(200);
    const { data, errors } = z
      .object({
        data: z.array(balance.shape.data),
        errors: z.array(z.object({ account_address: z.string() })),
      })
      .parse(await response.json());
    expect(data.map((row) => row.balance)).toEqual(
      good.map((pair) => String(truth(pair.account, pair.token))),
    );
    expect(errors.map(({ account_address }) => account_address)).toEqual(['0xZZ', '0x1', '0x2']);
  });

  test('last known balance is served as stale while the node is down', async () => {
    const known = random.pick(pairs().filter(({ token }) => token === tokenOf('strk')));
    await expectBalance(known, '&force_refresh=true');
    node.control({ command: 'fault', fault: { kind: 'http503', methods: ['starknet_call'] } });
    // Requests within a second share one read.
    await new Promise((resolve) => setTimeout(resolve, 1100));
    node.control({ command: 'advance', blocks: 1 });
    await upToDate();
    const { data } = await get(`/api/balance/?${keyOf(known)}&force_refresh=true`, balance);
    expect(data).toMatchObject({ stale: true, balance: String(truth(known.account, known.token)) });
    node.control({ command: 'advance', blocks: 3 });
    await upToDate();
    await expectBalance(known, '&max_age=100000');
    await expectHistory(known);
    // The node cannot be asked, but the index is complete, so a pair without transfers has balance 0.
    await expectAccounts(someOf(accounts(), 3));
    node.control({ command: 'clearFaults' });
    await eventually(() => expectBalance(known, '&force_refresh=true'));
  });

  test('a rebuild from the log gives the same balances', async () => {
    const watched = someOf(pairs(), 12);
    const env = { ...own.env, STARKNET_RPC_URL: node.url };
    const rebuilt = await tds(env, 'rebuild', 'account-ledger', 'balances', 'indexed-blocks');
    expect(rebuilt, rebuilt.stderr).toMatchObject({ code: 0 });
    for (const pair of watched) {
      await expectBalance(pair, '&max_age=100000');
      await expectHistory(pair);
    }
    await expectAccounts(someOf(accounts(), 4));
    await expectPortfolios(4);
  });

  test('balance read from the chain takes precedence for tokens that rebase or mint without events', async () => {
    const kafka = openKafka();
    const publisher = kafka.publisher();
    const strk = tokenOf('strk');
    const [rebased = 0n, poor = 0n] = [
      ...new Set(
        node.transfersAt(head()).flatMap(({ token, from }) => (token === strk && from !== 0n ? [from] : [])),
      ),
    ];
    const publishBalance = async (account: bigint, amount: bigint): Promise<void> => {
      const [holder, token, hash] = [
        hex(account),
        hex(strk),
        hex(BigInt(node.ledger.at(head())?.hash ?? '0x0')),
      ].map(parseFelt);
      if (!holder || !token || !hash) throw new Error('no felts');
      const times = { observed_at: Date.now(), requested_at: Date.now(), l1_height: null };
      const value = {
        type: 'balance.observed' as const,
        v: 1 as const,
        account: holder,
        token,
        balance: amount.toString(),
        block: head(),
        block_hash: hash,
        ...times,
      };
      await publisher.publish(topics.balances, [{ key: `${holder}:${token}`, value }]);
    };
    const more = 1000n;
    // The last observation at a block wins.
    for (const account of [rebased, poor])
      await expectBalance({ account, token: strk }, '&force_refresh=true');
    await publishBalance(rebased, truth(rebased, strk) + more);
    await publishBalance(poor, 1n);
    await publisher.close();
    await kafka.close();
    const shown = async (account: bigint): Promise<string> =>
      (await get(`/api/balance/?${keyOf({ account, token: strk })}&max_age=100000`, balance)).data.balance;
    await eventually(async () => expect(await shown(poor)).toBe('1'));
    await eventually(async () => expect(await shown(rebased)).toBe(String(truth(rebased, strk) + more)));
    const missing = 1n - truth(poor, strk);
    node.control({ command: 'advance', blocks: 6 });
    await upToDate();
    expect(await shown(rebased)).toBe(String(truth(rebased, strk) + more));

    const past = async (account: bigint) =>
      await get(`/api/balance-history/?${keyOf({ account, token: strk })}&${ALWAYS}`, history);
    const shifted = trueHistory({ account: rebased, token: strk }).map((line) => {
      const [block, index, held] = line.split(' ');
      return `${block} ${index} ${BigInt(held ?? 0) + more}`;
    });
    const seen = await past(rebased);
    expect(seen.data.map((row) => `${row.block_number} ${row.event_index} ${row.balance}`)).toEqual(shifted);
    // It paid its way with what the chain does not say it had: from where that makes less than nothing, nothing is known.
    // Where it is so now, the chain is asked, which knows better by then.
    const isNegative = truth(poor, strk) + missing < 0n;
    const whole = trueHistory({ account: poor, token: strk }).map((line) => {
      const [block, index, held] = line.split(' ');
      return { block, index, held: BigInt(held ?? 0) + (isNegative ? 0n : missing) };
    });
    const known = whole.slice(whole.findLastIndex(({ held }) => held < 0n) + 1);
    // A chain that does not answer within the time of a request leaves nothing known in its answer.
    await eventually(async () => {
      const { data, complete_from } = await past(poor);
      expect(data.map((row) => `${row.block_number} ${row.event_index} ${row.balance}`)).toEqual(
        known.map(({ block, index, held }) => `${block} ${index} ${held}`),
      );
      expect(complete_from === undefined).toBe(known.length === whole.length);
    });
  });
});
