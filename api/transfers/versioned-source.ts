import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { versionsOfAccount } from '../../projections/account-feed/queries.ts';
import type { ServedTables } from '../../projections/served.ts';
import { subjectTotals } from '../../projections/transfer-counts/queries.ts';
import { versionsOfAll, versionsOfToken } from '../../projections/transfers/queries.ts';
import type { VersionedSource } from '../../projections/transfers/queries.ts';
import { candidatesOf } from './plan.ts';
import type { Felts } from './plan.ts';

/** Names the rows in the tables of one moment. */
export type VersionedSourceIn = (tables: ServedTables) => VersionedSource;

/** The rows that hold the transfers of some filters, in every version: those of the felt with the fewest. */
export async function versionedSourceOf(
  clickhouse: ClickHouse,
  tables: ServedTables,
  felts: Felts,
): Promise<VersionedSourceIn> {
  const candidates = candidatesOf(felts);
  const subjects = candidates.length < 2 ? [] : candidates.flatMap((candidate) => candidate.subjects);
  const totals = await subjectTotals(clickhouse, tables, subjects);
  const [best] = candidates
    .map(({ filter }, i) => ({ filter, total: totals[i] ?? 0 }))
    .toSorted((a, b) => a.total - b.total);
  if (best === undefined) return versionsOfAll;
  const { filter } = best;
  return filter === 'token' ? versionsOfToken : (served) => versionsOfAccount(served, filter);
}
