import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { isDue } from '../../../projections/engine/deferred/derive.ts';
import { listBuilds } from '../../../projections/engine/builds.ts';
import { deferredProjections } from '../../../projections/index.ts';
import { createLogger } from '../../../infra/log.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import type { SimulatedNode } from '../starknet/node.ts';
import { hex } from '../truth.ts';
import { compare } from './tables.ts';

/** The expected content of the deferred tables, computed from the transfers that the simulated node intended. */

const ZERO = hex(0n);
const LARGEST_BALANCE = 1n << 255n;
const line = (...cells: readonly unknown[]): string => cells.map(String).join(' ');
const different = (felts: readonly string[]): number => new Set(felts.filter((one) => one !== ZERO)).size;

interface Moved {
  readonly token: string;
  readonly from: string;
  readonly to: string;
  readonly isCounted: boolean;
  readonly amount: bigint;
  readonly time: number;
}

function movedIn(node: Pick<SimulatedNode, 'ledger'>): { moved: Moved[]; times: number[] } {
  const moved: Moved[] = [];
  const times: number[] = [];
  for (let height = 0; height <= node.ledger.head(); height += 1) {
    const block = node.ledger.at(height);
    if (block === null) continue;
    const time = Number(block.header['timestamp']);
    times.push(time);
    for (const row of block.transfers) {
      moved.push({
        token: hex(row.token),
        from: hex(row.from),
        to: hex(row.to),
        isCounted: row.standard !== 'unknown',
        amount: row.standard === 'erc721' ? 1n : row.amount,
        time,
      });
    }
  }
  return { moved, times };
}

/** Balances; a rank for each of them. */
function holderLines(moved: readonly Moved[]): string[] {
  const sums = new Map<string, bigint>();
  const add = (key: string, amount: bigint): void => void sums.set(key, (sums.get(key) ?? 0n) + amount);
  for (const { token, from, to, isCounted, amount } of moved) {
    if (!isCounted) continue;
    if (from !== ZERO) add(line(token, from), -amount);
    if (to !== ZERO) add(line(token, to), amount);
  }
  return [...sums].filter(([, sum]) => sum > 0n && sum < LARGEST_BALANCE).map(([key, sum]) => line(key, sum));
}

/** Periods that are over at the newest block. */
function periodLines(
  moved: readonly Moved[],
  times: readonly number[],
): { token: string[]; chain: string[] } {
  const newest = Math.max(0, ...times);
  const lines: { token: string[]; chain: string[] } = { token: [], chain: [] };
  for (const step of [3600, 86_400]) {
    const startOf = (time: number): number => Math.floor(time / step) * step;
    const isOver = (start: number): boolean => start < startOf(newest);
    for (const [key, rows] of Map.groupBy(moved, ({ token, time }) => line(token, step, startOf(time)))) {
      if (!isOver(startOf(rows[0]?.time ?? 0))) continue;
      const volume = rows.reduce((sum, { isCounted, amount }) => sum + (isCounted ? amount : 0n), 0n);
      const sides = [different(rows.map(({ from }) => from)), different(rows.map(({ to }) => to))];
      lines.token.push(line(key, rows.length, volume, ...sides));
    }
    for (const [start, blocks] of Map.groupBy(times, startOf)) {
      const rows = moved.filter(({ time }) => startOf(time) === start);
      const accounts = different(rows.flatMap(({ from, to }) => [from, to]));
      const tokens = new Set(rows.map(({ token }) => token)).size;
      if (isOver(start)) lines.chain.push(line(step, start, blocks.length, rows.length, accounts, tokens));
    }
  }
  return lines;
}

const felt = (column: string): string => `concat('0x', lower(hex(${column})))`;
const over = (blocks: string): string =>
  `start + step <= intDiv((SELECT max(timestamp) FROM ${blocks} FINAL), step) * step`;

/** The same lines, selected from ClickHouse. */
const selects: Readonly<
  Record<string, { cells: readonly string[]; from: (name: (table: string) => string) => string }>
> = {
  token_holders: {
    cells: [felt('token'), felt('account'), 'balance'],
    from: (name) => `${name('token_holders')} FINAL`,
  },
  token_holder_ranks: {
    cells: [felt('token'), felt('account'), 'bitNot(balance_desc)'],
    from: (name) => `${name('token_holder_ranks')} FINAL`,
  },
  token_stats: {
    cells: [
      felt('token'),
      'step',
      'start',
      'transfers',
      'high * toUInt256(exp2(64)) * toUInt256(exp2(64)) + low',
      'senders',
      'receivers',
    ],
    from: (name) => `${name('token_stats')} FINAL WHERE ${over(name('indexed_blocks'))}`,
  },
  chain_stats: {
    cells: ['step', 'start', 'blocks', 'transfers', 'accounts', 'length(tokens)'],
    from: (name) => `${name('chain_stats')} FINAL WHERE ${over(name('indexed_blocks'))}`,
  },
};

const lineRow = z.object({ line: z.string() });

/** Missing and unexpected rows of the deferred tables. */
export async function deferredDifferences(
  clickhouse: ClickHouse,
  node: Pick<SimulatedNode, 'ledger'>,
  realName: (table: string) => string,
): Promise<string[]> {
  const { moved, times } = movedIn(node);
  const holders = holderLines(moved);
  const periods = periodLines(moved, times);
  const expected: Readonly<Record<string, string[]>> = {
    token_holders: holders,
    token_holder_ranks: holders,
    token_stats: periods.token,
    chain_stats: periods.chain,
  };
  const found: string[] = [];
  for (const [table, { cells, from }] of Object.entries(selects)) {
    const text = cells.map((cell) => `toString(${cell})`).join(", ' ', ");
    const sql = `SELECT concat(${text}) AS line FROM ${from(realName)}`;
    const rows = await clickhouse.rows({ name: 'test.deferred', sql, row: lineRow });
    found.push(
      ...compare(
        table,
        expected[table] ?? [],
        rows.map((row) => row.line),
      ),
    );
  }
  const totals = `SELECT concat(toString(sum(n)), ' ', toString(sum(counted))) AS line FROM (
      SELECT token, count() AS n, 0 AS counted FROM ${realName('token_holders')} FINAL GROUP BY token
      UNION ALL
      SELECT token, 0, sum(holders) FROM ${realName('token_holder_totals')} FINAL GROUP BY token
    ) GROUP BY token HAVING sum(n) != sum(counted)`;
  const uneven = await clickhouse.rows({ name: 'test.totals', sql: totals, row: lineRow });
  found.push(
    ...uneven.map(({ line: counts }) => `token_holder_totals: holders and their count are ${counts}`),
  );
  return found;
}

/** True while a pass has something to derive, or waits for another projection. */
export async function isAnythingDue(pool: Sql, clickhouse: ClickHouse): Promise<boolean> {
  const log = createLogger('fault-test', 'silent');
  const builds = (await listBuilds(pool)).filter(({ state }) => state === 'serving');
  for (const projection of deferredProjections) {
    const build = builds.find(({ projection: name }) => name === projection.name);
    if (build === undefined || (await isDue({ pool, clickhouse, log }, { projection, build }))) return true;
  }
  return false;
}
