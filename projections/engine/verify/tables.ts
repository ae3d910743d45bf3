import { endingWith } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { heightsOf, partitionOfHeight, rangeOf, topics } from '../../../schemas/topics.ts';
import { unbalancedTokens } from '../../account-ledger/queries.ts';
import { compareTables, differingRows } from '../compare.ts';
import type { Heights, TablePair } from '../compare.ts';
import { withNames } from '../../define.ts';
import { servedCheckpoint } from '../../progress.ts';
import { checkServed, withWritersStopped } from '../served-lock.ts';
import { NAMED } from './difference.ts';
import type { Difference } from './difference.ts';
import type { BlockTarget, Scratch } from './scratch.ts';

type Client = Pick<ClickHouse, 'rows' | 'command'>;

/** Base tables against what the log says, derived tables against their served base tables, and sums of ledger legs. */
export async function tableDifferences(
  clickhouse: Client,
  scratch: Scratch,
  heights: Heights,
): Promise<Difference[]> {
  for (const target of scratch.served) {
    for (let range = rangeOf(heights.from); range <= rangeOf(heights.to); range += 1) {
      await deriveScratch(clickhouse, scratch, target, range);
    }
  }
  const differences: Difference[] = [];
  // Derived tables first: what is written since they were recomputed makes them differ.
  for (const pair of [...scratch.derived, ...scratch.tables]) {
    differences.push(...(await compare(clickhouse, pair, heights)));
  }
  return [...differences, ...(await conservationDifferences(clickhouse, scratch, heights))];
}

/**
 * Recomputes one range of the scratch's derived tables from the served base tables.
 *
 * @param offset version of the rows
 */
export async function deriveScratch(
  clickhouse: Pick<ClickHouse, 'command'>,
  scratch: Scratch,
  { projection, build: { names } }: BlockTarget,
  range: number,
  offset = 0,
): Promise<void> {
  const derived = scratch.derived.filter(({ name }) => name in names);
  const own = { ...names, ...Object.fromEntries(derived.map(({ name, theirs }) => [name, theirs])) };
  const { from, to } = heightsOf(range);
  const touched = [from, to].map((height) => ({ height, chunk: '', offset, isNew: false }));
  for (const { sql, params } of projection.derive?.(touched) ?? []) {
    await clickhouse.command(withNames(sql, own), { params });
  }
}

/**
 * Recomputes one range of the scratch's derived tables under the version of the last message that the projection has read, and
 * runs `work`, while no batch is written: the served base tables and derived tables are of the same messages then.
 *
 * @param purpose what is done to the sums, for the error when it takes too long
 * @param work gets a client whose reads and commands fail once writers continue
 */
export async function withDerivedScratch<C extends Client>(
  { pool, clickhouse }: { readonly pool: Pool; readonly clickhouse: C },
  scratch: Scratch,
  target: BlockTarget,
  range: number,
  purpose: 'compared' | 'repaired',
  work: (clickhouse: C) => Promise<void>,
): Promise<void> {
  const { projection, build } = target;
  const { from, to } = heightsOf(range);
  const texts = {
    task: 'Recomputing and comparing sums',
    remedy: `the sums of blocks ${from} to ${to} are not ${purpose} yet; try again`,
  };
  await withWritersStopped(pool, [projection.name], texts, async (tx, signal) => {
    await checkServed(tx, [build]);
    const next = await servedCheckpoint(tx, projection.name, topics.chainBlocks, partitionOfHeight(from));
    const ending = endingWith(clickhouse, signal);
    await deriveScratch(ending, scratch, target, range, Math.max(0, (next ?? 0) - 1));
    await work(ending);
  });
}

/** Compares ranges of derived tables again that were written while they were compared. */
export async function settledDerived(
  deps: { readonly pool: Pool; readonly clickhouse: Client },
  scratch: Scratch,
  differences: readonly Difference[],
): Promise<Difference[]> {
  const settled: Difference[] = [];
  for (const target of scratch.served) {
    const own = differences.filter(({ table = '' }) => table in target.build.names);
    for (const [range, ofRange] of Map.groupBy(own, (one) => one.range ?? 0)) {
      await withDerivedScratch(deps, scratch, target, range, 'compared', async (clickhouse) => {
        for (const pair of scratch.derived) {
          const heights = ofRange.find(({ table }) => table === pair.name)?.heights;
          if (heights) settled.push(...(await compare(clickhouse, pair, heights)));
        }
      });
    }
  }
  return settled;
}

/** The legs of a token sum to zero, and every transfer has two. */
async function conservationDifferences(
  clickhouse: Client,
  scratch: Scratch,
  heights: Heights,
): Promise<Difference[]> {
  const served = new Map(scratch.tables.map(({ name, ours }) => [name, ours]));
  const table = (name: string): string => served.get(name) ?? name;
  const found = await unbalancedTokens(clickhouse, { table }, heights, NAMED);
  return found.map(({ token, sum, legs, transfers }) => ({
    kind: 'conservation',
    what: `token ${token}, blocks ${heights.from} to ${heights.to}: its legs sum to ${sum}; ${legs} legs for ${transfers} transfers`,
    heights,
  }));
}

/** Names differing rows one by one, up to a limit; beyond it, only the ranges that differ. */
async function compare(clickhouse: Client, pair: TablePair, heights: Heights): Promise<Difference[]> {
  const { differing } = await compareTables(clickhouse, pair, { heights });
  const differences: Difference[] = [];
  for (const { bucket, ours, theirs } of differing) {
    const { from, to } = heightsOf(bucket);
    const at = {
      kind: pair.isDerived ? ('derived' as const) : ('rows' as const),
      heights: {
        from: Math.max(heights.from, from),
        to: Math.min(heights.to, to),
      },
      table: pair.name,
      range: bucket,
    };
    const named =
      differences.length >= NAMED
        ? []
        : await differingRows(clickhouse, pair, { heights, buckets: [bucket], limit: NAMED });
    if (named.length === 0 || named.length === NAMED) {
      const source = pair.isDerived ? 'base table' : 'log';
      const count = `${ours.rows} rows are served, ${theirs.rows} by the ${source}`;
      differences.push({ ...at, what: `${pair.name}, range ${bucket}: ${count}` });
    }
    differences.push(
      ...named.map(({ kind, key, height }) => ({ ...at, height, what: `${pair.name}: ${kind} row ${key}` })),
    );
  }
  return differences;
}
