import type { Row } from '../../infra/clickhouse/row-binary.ts';
import { tokenHolders } from '../../projections/token-holders/projector.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';
import type { SimTable } from './sim-table.ts';

/*
 * The statements of the passes of token-holders in TypeScript. Simulated is when they read and write, under which number, and what
 * a process leaves that is killed between them.
 */

type Table = (name: string) => SimTable;
type Params = Readonly<Record<string, unknown>>;

const LARGEST = (1n << 256n) - 1n;
const SHARDS = 1024n;

/** The real name that a statement has for a table of token-holders or account-ledger. */
function nameIn(sql: string, stem: string): string {
  const [name] = new RegExp(`\\b${stem}_v\\d+_b\\d+\\b`).exec(sql) ?? [];
  if (name === undefined) throw new RangeError(`no table ${stem} in ${sql}`);
  return name;
}

const big = (row: Row, column: string): bigint => BigInt(String(row[column] ?? 0));
const shardOf = (account: unknown): number => Number(BigInt(String(account)) % SHARDS);

/** The rows that a statement of a pass inserts; null for one that is none. */
export function holderRows(name: string, sql: string, params: Params, table: Table): Row[] | null {
  const pass = Number(params['pass']);
  const ofPass = (): Row[] =>
    table(nameIn(sql, 'token_holders_pass'))
      .latest(() => 0)
      .filter((row) => row['pass'] === pass);
  const [, stem = ''] = /^([a-z_]+)_v\d+_b\d+$/.exec(name) ?? [];
  switch (stem) {
    case 'token_holders_pass':
      return computed(sql, pass, table);
    case 'token_holders':
      return ofPass().map(({ token, shard, account, ...row }) => ({
        token: token ?? '',
        shard: shard ?? 0,
        account: account ?? '',
        balance: big(row, 'balance'),
        previous: big(row, 'held'),
        seq: pass,
        is_deleted: big(row, 'balance') === 0n ? 1 : 0,
      }));
    case 'token_holder_ranks':
      return sql.includes('HAVING')
        ? ranksNew(ofPass(), table(nameIn(sql, 'token_holders')), pass)
        : ofPass().flatMap((row) => ranksHeld(row, pass));
    case 'token_holder_totals':
      return totals(ofPass(), table(nameIn(sql, 'token_holders')).final(), pass);
    default:
      return null;
  }
}

function computed(sql: string, pass: number, table: Table): Row[] {
  const spans = [...sql.matchAll(/range = (\d+) AND block BETWEEN (\d+) AND (\d+)/g)].map((found) =>
    found.map(Number),
  );
  const isTouched = (row: Row): boolean =>
    row['account'] !== ZERO_FELT &&
    spans.some(
      ([, range, first = 0, last = 0]) =>
        row['range'] === range && Number(row['block']) >= first && Number(row['block']) <= last,
    );
  const touched = table(nameIn(sql, 'account_ledger_by_block'))
    .latest(() => 0)
    .filter(isTouched);
  const sums = new Map<string, bigint>(touched.map((row) => [pairOf(row), 0n]));
  for (const row of table(nameIn(sql, 'account_ledger_ranges')).final()) {
    const sum = sums.get(pairOf(row));
    if (sum !== undefined) sums.set(pairOf(row), BigInt.asIntN(256, sum + big(row, 'delta')));
  }
  const now = newestByPair(table(nameIn(sql, 'token_holders')));
  return [...sums].map(([pair, sum]) => {
    const [token = '', account = ''] = pair.split('|');
    const row = now.get(pair) ?? {};
    const balance = sum > 0n ? sum : 0n;
    return {
      pass,
      token,
      shard: shardOf(account),
      account,
      balance,
      held: big(row, 'balance'),
      previous: big(row, 'previous'),
    };
  });
}

const pairOf = (row: Row): string => `${String(row['token'])}|${String(row['account'])}`;

const newestByPair = (holders: SimTable): ReadonlyMap<string, Row> =>
  new Map(holders.latest(() => 0).map((row) => [pairOf(row), row]));

/** Ranks of a pair: that of one balance is live, the others are deleted. */
function ranksOf(pair: Row, live: bigint, balances: readonly bigint[], seq: number): Row[] {
  return [...new Set(balances)]
    .filter((one) => one > 0n)
    .map((one) => ({
      token: pair['token'] ?? '',
      balance_desc: LARGEST - one,
      account: pair['account'] ?? '',
      seq,
      is_deleted: one === live ? 0 : 1,
    }));
}

function ranksHeld(row: Row, pass: number): Row[] {
  const [held, previous] = [big(row, 'held'), big(row, 'previous')];
  return held === previous ? [] : ranksOf(row, held, [held, previous], pass * 2);
}

function ranksNew(ofPass: readonly Row[], holders: SimTable, pass: number): Row[] {
  const newest = newestByPair(holders);
  const versions = Map.groupBy(holders.all(), pairOf);
  return ofPass.flatMap((one) => {
    const row = newest.get(pairOf(one));
    if (row === undefined || Number(row['seq']) !== pass) return [];
    const balances = (versions.get(pairOf(one)) ?? []).flatMap((version) => [
      big(version, 'balance'),
      big(version, 'previous'),
    ]);
    return ranksOf(row, big(row, 'balance'), balances, pass * 2 + 1);
  });
}

function totals(ofPass: readonly Row[], holders: readonly Row[], pass: number): Row[] {
  const shardIn = (row: Row): string => `${String(row['token'])}|${String(row['shard'])}`;
  const byShard = Map.groupBy(holders, shardIn);
  return [...new Set(ofPass.map(shardIn))].map((key) => {
    const [token = '', shard = ''] = key.split('|');
    return totalRow(token, Number(shard), byShard.get(key) ?? [], pass);
  });
}

function totalRow(token: string, shard: number, held: readonly Row[], pass: number): Row {
  const sum = (part: (balance: bigint) => bigint): bigint =>
    held.reduce((all, row) => all + part(big(row, 'balance')), 0n);
  return {
    token,
    shard,
    holders: held.length,
    high: sum((balance) => balance >> 128n),
    low: sum((balance) => balance % (1n << 128n)),
    seq: pass,
    is_deleted: held.length === 0 ? 1 : 0,
  };
}

/** The rows that the queries of a pass return, before they are parsed. */
export function passQuery(name: string, sql: string, table: Table): unknown[] {
  switch (name) {
    case 'due-blocks.list':
      return table(nameIn(sql, tokenHolders.deferred.due))
        .final()
        .map(({ block_desc, hour, seq: version }) => ({ block_desc, hour, version, age: 0 }));
    case 'token-holders.count':
      return [];
    default:
      throw new TypeError(`no simulated query ${name}`);
  }
}

/** What the tables must hold beside these legs of account_ledger. A balance of 2^255 or more counts as negative. */
export function expectedHolders(legs: readonly Row[]): Readonly<Record<string, Row[]>> {
  const sums = new Map<string, bigint>();
  for (const row of legs) {
    if (row['account'] === ZERO_FELT) continue;
    const pair = `${String(row['token'])}|${String(row['account'])}`;
    sums.set(pair, BigInt.asIntN(256, (sums.get(pair) ?? 0n) + big(row, 'delta')));
  }
  const holders = [...sums]
    .filter(([, balance]) => balance > 0n)
    .map(([pair, balance]) => {
      const [token = '', account = ''] = pair.split('|');
      return { token, shard: shardOf(account), account, balance, previous: 0 };
    });
  const shards = Map.groupBy(holders, ({ token, shard }) => `${token}|${shard}`);
  return {
    token_holders: holders,
    token_holder_ranks: holders.map(({ token, account, balance }) => ({
      token,
      balance_desc: LARGEST - balance,
      account,
    })),
    token_holder_totals: [...shards].map(([key, held]) => {
      const [token = '', shard = ''] = key.split('|');
      return totalRow(token, Number(shard), held, 0);
    }),
  };
}

/** The rows that a reader finds. */
export function holdersIn(table: Table): Readonly<Record<string, Row[]>> {
  return {
    token_holders: table('token_holders')
      .final()
      .map((row) => ({ ...row, previous: 0 })),
    token_holder_ranks: table('token_holder_ranks').final(),
    token_holder_totals: table('token_holder_totals').final(),
  };
}
