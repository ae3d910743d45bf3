import { describe, expect, it } from 'vitest';

import { planTransfers, subjectsToCount } from '../../../../api/transfers/plan.ts';
import type { PlanFacts } from '../../../../api/transfers/plan.ts';
import type { FeltFilter } from '../../../../projections/transfers/queries.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import type { Felt } from '../../../../schemas/felt.ts';

const [A, B, T, S] = [toFelt(0xan), toFelt(0xbn), toFelt(0x7n), toFelt(0x5n)];
const tables = { table: (name: string): string => `<${name}>` };

function knowing(totals: Record<string, number>, { searchIsHash = false, hasLegs = true } = {}): PlanFacts {
  const known = new Map(Object.entries(totals).map(([key, rows]) => [key, rows]));
  return {
    searchIsHash,
    hasLegs,
    scanRows: 1000,
    ofBlock: 3,
    total: ({ kind, felt }) => known.get(`${kind}:${BigInt(felt).toString(16)}`) ?? 0,
  };
}

/** What a plan reads, in short: table and the filter that its key answers. */
function reads(
  felts: Partial<Record<FeltFilter, Felt>>,
  known: PlanFacts,
  block: number | null = null,
): { from: string[]; exact: string | null; subject: string | null } {
  const plan = planTransfers(tables, felts, block, known);
  return {
    from: plan.sources.map(({ source }) =>
      `${/<(\w+)>/.exec(source.sql)?.[1]} ${source.settles.join()}`.trim(),
    ),
    exact: plan.exact === null ? null : `${plan.exact.kind}:${BigInt(plan.exact.felt).toString(16)}`,
    subject: plan.subject === null ? null : `${plan.subject.kind}:${BigInt(plan.subject.felt).toString(16)}`,
  };
}

describe('the plan of a page of transfers', () => {
  it('uses the key of the only filter and its maintained counts', () => {
    expect(reads({ token: T }, knowing({}))).toEqual({
      from: ['transfers token'],
      exact: 'token:7',
      subject: 'token:7',
    });
    expect(reads({ account: A }, knowing({}))).toEqual({
      from: ['account_feed account'],
      exact: 'account:a',
      subject: 'account:a',
    });
  });

  it('has no exact count for one side of an account', () => {
    for (const filter of ['from', 'to'] as const) {
      expect(reads({ [filter]: A }, knowing({}))).toEqual({
        from: [`account_feed ${filter}`],
        exact: null,
        subject: 'account:a',
      });
    }
  });

  it('uses the filter with the fewest rows', () => {
    const both = { account: A, token: T };
    expect(reads(both, knowing({ 'account:a': 9_000_000, 'token:7': 12 })).from).toEqual(['transfers token']);
    expect(reads(both, knowing({ 'account:a': 12, 'token:7': 9_000_000 })).from).toEqual([
      'account_feed account',
    ]);
    expect(reads(both, knowing({ 'account:a': 1, 'token:7': 2 })).exact).toBeNull();
    const sides = { from: A, to: B, token: T };
    expect(reads(sides, knowing({ 'account:a': 5, 'account:b': 3, 'token:7': 4 })).from).toEqual([
      'account_feed to',
    ]);
    expect(
      reads({ search: S, token: T }, knowing({ 'token:7': 3, 'account:5': 2, 'token:5': 2 })).from,
    ).toEqual(['transfers token']);
  });

  it('finds the rows of a busy pair by its legs, unless the token has none', () => {
    const busy = { 'account:a': 2000, 'account:b': 9000, 'token:7': 3000 };
    const positions = (felts: Partial<Record<FeltFilter, Felt>>, known: PlanFacts): string | undefined =>
      planTransfers(tables, felts, null, known).positions?.settles.join();
    for (const side of ['account', 'from', 'to'] as const) {
      expect(positions({ [side]: A, token: T }, knowing(busy))).toBe(`token,${side}`);
    }
    expect(positions({ account: A, token: T }, knowing(busy, { hasLegs: false }))).toBeUndefined();
    expect(positions({ account: A, token: T }, knowing({ ...busy, 'token:7': 1000 }))).toBeUndefined();
    expect(positions({ account: A }, knowing(busy))).toBeUndefined();
    expect(positions({ token: T }, knowing(busy))).toBeUndefined();
    expect(positions({ from: A, to: B, token: T }, knowing(busy))).toBeUndefined();
    expect(
      positions({ account: A, token: T, search: S }, knowing({ ...busy, 'token:5': 5000 })),
    ).toBeUndefined();
  });

  it('prefers the transaction to every filter, and every filter to the block', () => {
    const known = knowing({ 'account:a': 1, 'token:7': 1 });
    expect(reads({ txhash: S, account: A, token: T }, known, 7).from).toEqual(['transfers txhash']);
    expect(reads({ account: A }, known, 7).from).toEqual(['account_feed account']);
    const plan = planTransfers(tables, {}, 7, known);
    expect(plan.sources[0]?.source.sql).toContain('<indexed_blocks>');
    expect(plan.exact).toBeNull();
  });

  it('knows the number of transfers of a block, and reads none of a block that is empty or not indexed', () => {
    const known = knowing({});
    expect(planTransfers(tables, {}, 7, known)).toMatchObject({ sources: { length: 1 }, count: 3 });
    expect(planTransfers(tables, {}, 7, { ...known, ofBlock: 0 })).toMatchObject({ sources: [], count: 0 });
    expect(planTransfers(tables, { account: A }, 7, known).count).toBeNull();
    expect(planTransfers(tables, { token: T }, 7, known).count).toBeNull();
    expect(planTransfers(tables, { search: S }, 7, known).count).toBeNull();
    expect(planTransfers(tables, { txhash: S }, 7, known).count).toBeNull();
  });

  it('treats a search as what the counts show it is', () => {
    const search = { search: S };
    expect(reads(search, knowing({ 'account:5': 3 }))).toMatchObject({
      from: ['account_feed search'],
      exact: 'account:5',
    });
    expect(reads(search, knowing({ 'token:5': 3 }))).toMatchObject({
      from: ['transfers search'],
      exact: 'token:5',
    });
    expect(reads(search, knowing({}, { searchIsHash: true }))).toEqual({
      from: ['transfers search'],
      exact: null,
      subject: null,
    });
    expect(reads(search, knowing({ 'account:5': 1, 'token:5': 3 }, { searchIsHash: true }))).toEqual({
      from: ['account_feed search', 'transfers search', 'transfers search'],
      exact: null,
      subject: null,
    });
    expect(reads(search, knowing({})).from).toHaveLength(3);
    expect(reads({ search: S, account: A }, knowing({ 'account:5': 1, 'account:a': 2 }))).toMatchObject({
      from: ['account_feed search'],
      exact: null,
    });
  });

  it('needs totals only if there is a choice', () => {
    expect(subjectsToCount({ token: T })).toEqual([]);
    expect(subjectsToCount({ from: A })).toEqual([]);
    expect(subjectsToCount({ txhash: S, account: A, token: T })).toEqual([]);
    expect(subjectsToCount({})).toEqual([]);
    expect(subjectsToCount({ from: A, token: T })).toHaveLength(2);
    expect(subjectsToCount({ search: S })).toEqual([
      { kind: 'account', felt: S },
      { kind: 'token', felt: S },
    ]);
  });
});
