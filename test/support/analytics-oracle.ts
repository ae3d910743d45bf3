import type { Transfer } from '../../schemas/decode/index.ts';
import { STRK_TOKEN, ZERO_FELT, toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { Random } from './random.ts';
import { aTransfer, hashAt } from './transfer-world.ts';
import type { WorldBlock } from './transfer-world.ts';

/** What the routes of analytics answer about a chain, computed from its blocks alone. */

export const COIN = toFelt(0xc01n);
/** Balances change without transfers: accounts send more than they have received. */
export const REBASING = toFelt(0xc02n);
/** All that is minted is burned in the same block. */
export const NOBODYS = toFelt(0xc03n);
export const HUGE = toFelt(0xc04n);
export const ART = toFelt(0xa47n);
export const ITEMS = toFelt(0x1155n);
const RIDDLE = toFelt(0x0ddn);
export const tokens = [COIN, REBASING, NOBODYS, HUGE, ART, ITEMS, RIDDLE, STRK_TOKEN] as const;
/** Some of one shard. */
export const accounts: readonly Felt[] = Array.from({ length: 40 }, (_, index) =>
  toFelt(index % 2 === 0 ? 0xacc0n + BigInt(index) : 0xacc_0000n + BigInt(index) * 1024n),
);

type Chain = ReadonlyMap<number, WorldBlock>;
const LIMIT = 1n << 255n;

function transferOf(random: Random): Pick<Transfer, 'token' | 'from' | 'to'> & Partial<Transfer> {
  const [from, to] = [random.pick(accounts), random.pick(accounts)];
  const some = BigInt(1 + random.below(5));
  switch (random.below(8)) {
    case 0:
      return { token: REBASING, from, to, amount: some };
    case 1:
      return { token: HUGE, from: ZERO_FELT, to, amount: random.pick([1n, (1n << 128n) - 1n, 1n << 250n]) };
    case 2:
      return { token: ART, kind: 'erc721', tokenId: some, from: random.pick([ZERO_FELT, from]), to };
    case 3:
      return { token: ITEMS, kind: 'erc1155', tokenId: some, from: ZERO_FELT, to, amount: some };
    case 4:
      return { token: RIDDLE, kind: 'unknown', from, to, amount: some };
    case 5:
      return { token: STRK_TOKEN, from, to: random.pick(accounts.slice(0, 2)), isFee: true, amount: some };
    default:
      return {
        token: COIN,
        from: random.pick([ZERO_FELT, from]),
        to: random.pick([to, to, ZERO_FELT]),
        amount: some,
      };
  }
}

/** Three blocks in an hour; blocks of another fork have other transfers, and are so many blocks later. */
export function analyticsBlock(random: Random, height: number, most: number, fork = 0): WorldBlock {
  const made = Array.from({ length: most === 0 ? 0 : random.below(most) }, () => transferOf(random));
  const minted = random.pick(accounts);
  const nobodys = [
    { token: NOBODYS, from: ZERO_FELT, to: minted, amount: 7n },
    { token: NOBODYS, from: minted, to: ZERO_FELT, amount: 7n },
  ];
  const moved = height % 10 === 0 ? [...made, ...nobodys] : made;
  return {
    height,
    hash: toFelt(BigInt(hashAt(height)) + (BigInt(fork) << 64n)),
    timestamp: 1_700_000_000 + 1200 * (height + fork),
    chunk: 'live',
    transfers: moved.map((one, position) =>
      aTransfer({
        ...one,
        position,
        txHash: toFelt(0x7a_0000_0000n + BigInt(fork * 1_000_000 + height * 100 + position)),
      }),
    ),
  };
}

const rowsOf = (chain: Chain) =>
  [...chain.values()].flatMap(({ timestamp, transfers }) => transfers.map((row) => ({ ...row, timestamp })));

/** Every holder of a token at a time (unix seconds), in order. */
export function holdersOf(chain: Chain, token: Felt, until = Infinity) {
  const sums = new Map<Felt, bigint>();
  const add = (account: Felt, amount: bigint): void =>
    void sums.set(account, (sums.get(account) ?? 0n) + amount);
  for (const row of rowsOf(chain)) {
    if (row.token !== token || row.kind === 'unknown' || row.timestamp > until) continue;
    add(row.from, -row.amount);
    add(row.to, row.amount);
  }
  const holders = [...sums].filter(([account, sum]) => account !== ZERO_FELT && sum > 0n && sum < LIMIT);
  const total = holders.reduce((sum, [, balance]) => sum + balance, 0n);
  return holders
    .toSorted(([a, x], [b, y]) => (x === y ? (a < b ? -1 : 1) : x > y ? -1 : 1))
    .map(([account_address, balance], index) => ({
      rank: index + 1,
      account_address,
      balance: String(balance),
      share: Number(balance) / Number(total),
    }));
}

const HOUR = 3600;
const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();
const isoBlock = (seconds: number): string => iso(seconds).replace('.000Z', 'Z');
const different = (felts: readonly Felt[]): number => new Set(felts.filter((one) => one !== ZERO_FELT)).size;

/** Periods that begin between two times (unix seconds), both inclusive. */
interface Asked {
  readonly step: number;
  readonly first: number;
  readonly last: number;
}

function byPeriod<T extends { readonly timestamp: number }>(
  rows: readonly T[],
  { step, first, last }: Asked,
) {
  const periods = Map.groupBy(rows, ({ timestamp }) => Math.floor(timestamp / step) * step);
  return [...periods].filter(([start]) => start >= first && start <= last).toSorted(([a], [b]) => a - b);
}

export function tokenStatsOf(chain: Chain, token: Felt, asked: Asked) {
  const own = rowsOf(chain).filter((row) => row.token === token);
  return byPeriod(own, asked).map(([start, rows]) => ({
    time: iso(start),
    transfers: rows.length,
    volume: String(rows.reduce((sum, { kind, amount }) => sum + (kind === 'unknown' ? 0n : amount), 0n)),
    senders: different(rows.map(({ from }) => from)),
    receivers: different(rows.map(({ to }) => to)),
    mints: rows.filter(({ from }) => from === ZERO_FELT).length,
    burns: rows.filter(({ to }) => to === ZERO_FELT).length,
  }));
}

export function chainStatsOf(chain: Chain, asked: Asked) {
  const periods = byPeriod([...chain.values()], asked);
  const results = periods.map(([start, blocks]) => {
    const rows = blocks.flatMap(({ transfers }) => transfers);
    return {
      time: iso(start),
      blocks: blocks.length,
      transfers: rows.length,
      accounts: different(rows.flatMap(({ from, to }) => [from, to])),
      tokens: new Set(rows.map(({ token }) => token)).size,
    };
  });
  const moved = periods.flatMap(([, blocks]) => blocks.flatMap(({ transfers }) => transfers));
  const top = [...Map.groupBy(moved, ({ token }) => token)]
    .map(([token_address, rows]) => ({ token_address, transfers: rows.length }))
    .toSorted((a, b) => b.transfers - a.transfers || (a.token_address < b.token_address ? -1 : 1));
  return { results, top_tokens: top.slice(0, 10) };
}

export function accountStatsOf(chain: Chain, account: Felt) {
  const rows = rowsOf(chain).filter(({ from, to }) => from === account || to === account);
  const times = rows.map(({ timestamp }) => timestamp);
  const others = rows
    .map(({ from, to }) => (from === account ? to : from))
    .filter((other) => other !== account);
  const paid = rows.filter(({ isFee, from }) => isFee && from === account);
  return {
    first_seen: rows.length === 0 ? null : isoBlock(Math.min(...times)),
    last_seen: rows.length === 0 ? null : isoBlock(Math.max(...times)),
    transfers: rows.length,
    tokens: new Set(rows.map(({ token }) => token)).size,
    counterparties: different(others),
    fees: [...Map.groupBy(paid, ({ token }) => token)]
      .map(([token_address, own]) => ({
        token_address,
        amount: String(own.reduce((sum, { amount }) => sum + amount, 0n)),
      }))
      .toSorted((a, b) => (a.token_address < b.token_address ? -1 : 1)),
  };
}

export const STEPS = { '1 hour': HOUR, '1 day': 24 * HOUR } as const;
