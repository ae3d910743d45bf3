import type { StoredTransfer } from '../../projections/transfers/queries.ts';
import type { Transfer } from '../../schemas/decode/index.ts';
import { toFelt } from '../../schemas/felt.ts';
import { randomWorld } from './transfer-world.ts';
import type { Random } from './random.ts';
import type { WorldBlock } from './transfer-world.ts';

/** Filters and sorts transfers in memory, to compare pages of the stores with. */

export type Query = Record<string, string>;
export interface IndexedTransfer extends Transfer {
  readonly block: number;
  readonly timestamp: number;
}

export const keyOf = (row: { block: number; position: number; item: number }): string =>
  `${row.block}:${row.position}:${row.item}`;

/** The contract's filters, applied to all indexed transfers. */
export function matching(chain: ReadonlyMap<number, WorldBlock>, query: Query): IndexedTransfer[] {
  const rows: IndexedTransfer[] = [...chain.values()].flatMap(({ height, timestamp, transfers }) =>
    transfers.map((transfer) => ({ ...transfer, block: height, timestamp })),
  );
  const same = (felt: string, text: string): boolean => BigInt(felt) === BigInt(text);
  const tests: Record<string, (row: IndexedTransfer, text: string) => boolean> = {
    account: (row, text) => same(row.from, text) || same(row.to, text),
    from_account: (row, text) => same(row.from, text),
    to_account: (row, text) => same(row.to, text),
    token: (row, text) => same(row.token, text),
    txhash: (row, text) => same(row.txHash, text),
    search: (row, text) => [row.from, row.to, row.token, row.txHash].some((felt) => same(felt, text)),
    block: (row, text) => row.block === Number(text),
    from_block: (row, text) => row.block >= Number(text),
    to_block: (row, text) => row.block <= Number(text),
    start_time: (row, text) => row.timestamp * 1000 >= Date.parse(text),
    end_time: (row, text) => row.timestamp * 1000 <= Date.parse(text),
  };
  const way = query['order'] === 'asc' ? 1 : -1;
  return rows
    .filter((row) => Object.entries(query).every(([name, text]) => tests[name]?.(row, text) ?? true))
    .toSorted((a, b) => way * (a.block - b.block || a.position - b.position || a.item - b.item));
}

export const stored = (row: IndexedTransfer): StoredTransfer => ({
  token: row.token,
  block: row.block,
  position: row.position,
  item: row.item,
  from: row.from,
  to: row.to,
  kind: row.kind,
  amount: row.amount.toString(),
  token_id: (row.tokenId ?? 0n).toString(),
  txhash: row.txHash,
  timestamp: row.timestamp,
  fee: row.fee.toString(),
  fee_unit: row.feeToken,
  is_fee: row.isFee ? 1 : 0,
  execution_status: row.executionStatus,
});

/** A random query over all filters, dense enough that filters combine and rows match. */
export function randomQuery(chain: ReadonlyMap<number, WorldBlock>, random: Random): Query {
  const rows = matching(chain, {});
  const seed = random.pick(rows);
  const stranger = toFelt(0xdead_beefn);
  const felt = (likely: string, others: readonly string[]): string =>
    random.below(8) === 0 ? (random.below(4) === 0 ? stranger : random.pick(others)) : likely;
  const { tokens, accounts, ambiguous } = randomWorld;
  const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();
  const makers: Record<string, () => string> = {
    account: () => felt(random.below(2) === 0 ? seed.from : seed.to, accounts),
    from_account: () => felt(seed.from, accounts),
    to_account: () => felt(seed.to, accounts),
    token: () => felt(seed.token, tokens),
    txhash: () => felt(seed.txHash, ambiguous),
    search: () => felt(random.pick([seed.from, seed.to, seed.token, seed.txHash, ...ambiguous]), ambiguous),
    block: () => String(random.below(10) === 0 ? 77_777 : seed.block),
  };
  const names = Object.keys(makers);
  const query: Query = {};
  const first = random.pick(names);
  for (const name of names) {
    if (name === first || random.below(5) === 0) query[name] = makers[name]?.() ?? '';
  }
  if (random.below(4) === 0) query['from_block'] = String(Math.max(0, seed.block - random.below(1100)));
  if (random.below(4) === 0) query['to_block'] = String(seed.block + random.below(1100));
  if (random.below(6) === 0) query['start_time'] = iso(seed.timestamp - random.below(3000));
  if (random.below(6) === 0) query['end_time'] = iso(seed.timestamp + random.below(3000));
  if (random.below(2) === 0) query['order'] = 'asc';
  return query;
}
