import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { HEIGHT_RANGE } from '../../../schemas/topics.ts';
import { unbalancedTokens } from '../../account-ledger/queries.ts';
import { compareTables, differingRows } from '../compare.ts';
import type { Heights, TablePair } from '../compare.ts';
import { withNames } from '../../define.ts';
import type { Build } from '../builds.ts';
import { NAMED } from './difference.ts';
import type { Difference } from './difference.ts';
import type { Scratch } from './scratch.ts';

type Reader = Pick<ClickHouse, 'rows' | 'command'>;

/** Every table that is made from the log against what the log says, row by row where a range differs. */
export async function rowDifferences(
  clickhouse: Reader,
  scratch: Scratch,
  heights: Heights,
): Promise<Difference[]> {
  const differences: Difference[] = [];
  for (const pair of scratch.tables) differences.push(...(await compare(clickhouse, pair, heights, false)));
  return differences;
}

/** Derived tables against what their base tables, as they are served, come to. */
export async function derivedDifferences(
  clickhouse: Reader,
  scratch: Scratch,
  heights: Heights,
): Promise<Difference[]> {
  for (const { projection, build } of scratch.served) {
    const names = scratchNames(scratch, build);
    for (let range = rangeOf(heights.from); range <= rangeOf(heights.to); range += 1) {
      await derive(clickhouse, projection, names, range, 0);
    }
  }
  const differences: Difference[] = [];
  for (const pair of scratch.derived) differences.push(...(await compare(clickhouse, pair, heights, true)));
  return differences;
}

/** A build's base tables with the derived ones of the scratch: where they are recomputed to be compared. */
export function scratchNames(scratch: Scratch, { names }: Build): Readonly<Record<string, string>> {
  const derived = scratch.derived.filter(({ name }) => name in names);
  return { ...names, ...Object.fromEntries(derived.map(({ name, theirs }) => [name, theirs])) };
}

/** Recomputes one range of a projection's derived tables, as `names` call them. */
export async function derive(
  clickhouse: Pick<ClickHouse, 'command'>,
  projection: Scratch['served'][number]['projection'],
  names: Readonly<Record<string, string>>,
  range: number,
  offset: number,
): Promise<void> {
  const [first, last] = [range * HEIGHT_RANGE, (range + 1) * HEIGHT_RANGE - 1];
  const touched = [first, last].map((height) => ({ height, chunk: '', offset }));
  for (const { sql, params } of projection.derive?.(touched) ?? []) {
    await clickhouse.command(withNames(sql, names), { params });
  }
}

/** The legs of a token sum to zero, and come in pairs. */
export async function conservationDifferences(
  clickhouse: Reader,
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

export function rangeOf(height: number): number {
  return Math.floor(height / HEIGHT_RANGE);
}

async function compare(
  clickhouse: Reader,
  pair: TablePair,
  heights: Heights,
  isDerived: boolean,
): Promise<Difference[]> {
  const ranges = Array.from(
    { length: rangeOf(heights.to) - rangeOf(heights.from) + 1 },
    (_, index) => rangeOf(heights.from) + index,
  );
  const limits = isDerived ? { isDerived, buckets: ranges } : { isDerived, heights };
  const { differing } = await compareTables(clickhouse, pair, limits);
  const differences: Difference[] = [];
  for (const { bucket, ours, theirs } of differing) {
    const at = {
      kind: isDerived ? ('derived' as const) : ('rows' as const),
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
        : await differingRows(clickhouse, pair, { ...limits, buckets: [bucket], limit: NAMED });
    if (named.length === 0 || named.length === NAMED) {
      const count = `${ours.rows} rows are served, ${theirs.rows} ${isDerived ? 'by the base table' : 'by the log'}`;
      differences.push({ ...at, what: `${pair.name}, range ${bucket}: ${count}` });
    }
    differences.push(
      ...named.map(({ kind, key, height }) => ({ ...at, height, what: `${pair.name}: ${kind} row ${key}` })),
    );
  }
  return differences;
}
