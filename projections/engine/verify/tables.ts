import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { HEIGHT_RANGE, rangeOf } from '../../../schemas/topics.ts';
import { unbalancedTokens } from '../../account-ledger/queries.ts';
import { compareTables, differingRows } from '../compare.ts';
import type { Heights, TablePair } from '../compare.ts';
import { withNames } from '../../define.ts';
import type { BlockProjection } from '../../define.ts';
import type { Build } from '../builds.ts';
import { NAMED } from './difference.ts';
import type { Difference } from './difference.ts';
import type { Scratch } from './scratch.ts';

type Client = Pick<ClickHouse, 'rows' | 'command'>;

/** Base tables against what the log says, derived tables against their served base tables, and sums of ledger legs. */
export async function tableDifferences(
  clickhouse: Client,
  scratch: Scratch,
  heights: Heights,
): Promise<Difference[]> {
  for (const { projection, build } of scratch.served) {
    for (let range = rangeOf(heights.from); range <= rangeOf(heights.to); range += 1) {
      await deriveScratch(clickhouse, scratch, projection, build, range);
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
  projection: BlockProjection,
  { names }: Build,
  range: number,
  offset = 0,
): Promise<void> {
  const derived = scratch.derived.filter(({ name }) => name in names);
  const own = { ...names, ...Object.fromEntries(derived.map(({ name, theirs }) => [name, theirs])) };
  const [first, last] = [range * HEIGHT_RANGE, (range + 1) * HEIGHT_RANGE - 1];
  const touched = [first, last].map((height) => ({ height, chunk: '', offset, isNew: false }));
  for (const { sql, params } of projection.derive?.(touched) ?? []) {
    await clickhouse.command(withNames(sql, own), { params });
  }
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
    const at = {
      kind: pair.isDerived ? ('derived' as const) : ('rows' as const),
      heights: {
        from: Math.max(heights.from, bucket * HEIGHT_RANGE),
        to: Math.min(heights.to, (bucket + 1) * HEIGHT_RANGE - 1),
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
