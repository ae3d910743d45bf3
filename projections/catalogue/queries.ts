import { z } from 'zod';

import { countOf, sqlRow, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { domainStatus, reportStatus, riskLevel, walletStatus } from '../../schemas/catalogue.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt } from '../../schemas/messages/common.ts';
import { columnsOf, conditionsOf, pageOf } from './pages.ts';
import type { Page } from './pages.ts';

export {
  adsOfPlacement,
  categoryBySlug,
  classHashById,
  countCategories,
  countClassHashes,
  countDapps,
  dappBySlug,
  isKnownAd,
  latestClassHashes,
  listCategories,
  listClassHashes,
  listDapps,
} from './directory.ts';
export { compareRecords, isEmptyOf, recordsOf, unknownCategories } from './files.ts';
export type { RecordCounts } from './files.ts';
export type { Ad, Category, ClassHash, Dapp } from './directory.ts';

/** Read side of the catalogue. `schema` is the served build's: `served.schema('catalogue')`. Times are unix milliseconds. */

export const walletRow = z.object({
  id: z.number(),
  wallet_address: felt,
  network: z.string(),
  wallet_type: z.string(),
  status: walletStatus,
  is_verified: z.boolean(),
  is_active: z.boolean(),
  transaction_count: z.number(),
  last_activity_at: z.number().nullable(),
  created_at: z.number(),
  updated_at: z.number(),
});
export type Wallet = z.infer<typeof walletRow>;

export const domainReportRow = z.object({
  id: z.number(),
  user_id: z.number(),
  domain: z.string(),
  category: z.string(),
  reason: z.string(),
  evidence: z.string(),
  status: reportStatus,
  created_at: z.number(),
  reviewed_at: z.number().nullable(),
});
export type DomainReport = z.infer<typeof domainReportRow>;

const domainRow = z.object({
  id: z.number(),
  domain: z.string(),
  status: domainStatus,
  category: z.string(),
  risk_level: riskLevel.nullable(),
  reason: z.string(),
  source: z.string(),
  evidence_url: z.string(),
  active: z.boolean(),
  created_at: z.number(),
  updated_at: z.number(),
});
export type DomainRecord = z.infer<typeof domainRow>;

export async function walletById(db: Sql, schema: string, id: number): Promise<Wallet | null> {
  return await sqlRow(db, walletRow, `SELECT ${columnsOf(walletRow)} FROM ${schema}.wallets WHERE id = $1`, [
    id,
  ]);
}

/** The entry of an address on one network. */
export async function walletAt(
  db: Sql,
  schema: string,
  address: string,
  network: string,
): Promise<Wallet | null> {
  return await sqlRow(
    db,
    walletRow,
    `SELECT ${columnsOf(walletRow)} FROM ${schema}.wallets WHERE wallet_address = $1 AND network = $2`,
    [address, network],
  );
}

/** Absent fields do not filter. */
export interface WalletFilters {
  readonly network?: string | undefined;
  readonly address?: Felt | undefined;
  readonly type?: string | undefined;
  readonly status?: Wallet['status'] | undefined;
  readonly isVerified?: boolean | undefined;
  readonly isActive?: boolean | undefined;
}

const walletConditions = (filters: WalletFilters): { where: string; values: unknown[] } =>
  conditionsOf({
    network: filters.network,
    wallet_address: filters.address,
    wallet_type: filters.type,
    status: filters.status,
    is_verified: filters.isVerified,
    is_active: filters.isActive,
  });

export async function countWallets(db: Sql, schema: string, filters: WalletFilters): Promise<number> {
  const { network = null, address, type, status, isVerified, isActive } = filters;
  const isCounted = [address, type, status, isVerified ?? isActive].every((filter) => filter === undefined);
  if (isCounted) return (await walletCounts(db, schema, network)).total;
  const { where, values } = walletConditions(filters);
  return await countOf(db, `SELECT count(*) AS n FROM ${schema}.wallets WHERE ${where}`, values);
}

/** In the order of their registration. */
export async function listWallets(
  db: Sql,
  schema: string,
  filters: WalletFilters,
  page: Page,
): Promise<Wallet[]> {
  const { where, values } = walletConditions(filters);
  const select = `SELECT ${columnsOf(walletRow)} FROM ${schema}.wallets WHERE ${where}`;
  return await pageOf(db, walletRow, `${select} ORDER BY id`, values, page);
}

/** The entry of an address; without a network, an active one before others, then the oldest. */
export async function walletOf(
  db: Sql,
  schema: string,
  address: Felt,
  network: string | null,
): Promise<Wallet | null> {
  return await sqlRow(
    db,
    walletRow,
    `SELECT ${columnsOf(walletRow)} FROM ${schema}.wallets
     WHERE wallet_address = $1 AND ($2::text IS NULL OR network = $2) ORDER BY is_active DESC, id LIMIT 1`,
    [address, network],
  );
}

const walletCountsRow = z.object({ total: z.number(), active: z.number(), verified: z.number() });

/** @param network null: all networks */
export async function walletCounts(
  db: Sql,
  schema: string,
  network: string | null,
): Promise<z.infer<typeof walletCountsRow>> {
  const sums = ['total', 'active', 'verified'].map((one) => `coalesce(sum(${one}), 0)::bigint AS ${one}`);
  const [counts] = await sqlRows(
    db,
    walletCountsRow,
    `SELECT ${sums.join(', ')} FROM ${schema}.wallet_counts WHERE $1::text IS NULL OR network = $1`,
    [network],
  );
  return counts ?? { total: 0, active: 0, verified: 0 };
}

export interface DomainFilters {
  readonly domain?: string | undefined;
  readonly status?: DomainRecord['status'] | undefined;
  readonly category?: string | undefined;
  readonly riskLevel?: DomainRecord['risk_level'] | undefined;
  readonly active?: boolean | undefined;
  /** Part of the domain, in lower case. */
  readonly part?: string | undefined;
}

function domainConditions(filters: DomainFilters): { where: string; values: unknown[] } {
  const { domain, status, category, riskLevel: risk, active, part } = filters;
  const { where, values } = conditionsOf({ domain, status, category, risk_level: risk });
  const flag = active === undefined ? '' : active ? ' AND active' : ' AND NOT active';
  if (part === undefined) return { where: where + flag, values };
  const pattern = `%${part.replaceAll(/[\\%_]/g, (special) => `\\${special}`)}%`;
  return { where: `${where}${flag} AND domain LIKE $${values.length + 1}`, values: [...values, pattern] };
}

export async function countDomains(db: Sql, schema: string, filters: DomainFilters): Promise<number> {
  const { where, values } = domainConditions(filters);
  const { domain, category, riskLevel: risk, part } = filters;
  if ([domain, category, risk, part].every((filter) => filter === undefined)) {
    const kept = `SELECT coalesce(sum(n), 0)::bigint AS n FROM ${schema}.domain_counts WHERE ${where}`;
    return await countOf(db, kept, values);
  }
  return await countOf(db, `SELECT count(*) AS n FROM ${schema}.domains WHERE ${where}`, values);
}

/** In the order of their listing. */
export async function listDomains(
  db: Sql,
  schema: string,
  filters: DomainFilters,
  page: Page,
): Promise<DomainRecord[]> {
  const { where, values } = domainConditions(filters);
  const select = `SELECT ${columnsOf(domainRow)} FROM ${schema}.domains WHERE ${where}`;
  return await pageOf(db, domainRow, `${select} ORDER BY id`, values, page);
}

export async function domainById(db: Sql, schema: string, id: number): Promise<DomainRecord | null> {
  return await sqlRow(db, domainRow, `SELECT ${columnsOf(domainRow)} FROM ${schema}.domains WHERE id = $1`, [
    id,
  ]);
}

export async function domainByName(db: Sql, schema: string, domain: string): Promise<DomainRecord | null> {
  return await sqlRow(
    db,
    domainRow,
    `SELECT ${columnsOf(domainRow)} FROM ${schema}.domains WHERE domain = $1`,
    [domain],
  );
}

/**
 * The nearest entry in force (active, and whitelisted or blacklisted) of a domain and its parent domains. A domain ends
 * in the names of its parents, so the nearest is the longest.
 */
export async function nearestInForce(
  db: Sql,
  schema: string,
  domains: readonly string[],
): Promise<DomainRecord | null> {
  const listed = await sqlRows(
    db,
    domainRow,
    `SELECT ${columnsOf(domainRow)} FROM ${schema}.domains
     WHERE domain = ANY($1) AND in_force_since IS NOT NULL`,
    [domains],
  );
  return listed.toSorted((a, b) => b.domain.length - a.domain.length)[0] ?? null;
}

/** Position of a domain in the order of changes: the command that changed it last, then its id. */
export interface ChangePosition {
  readonly changed: number;
  readonly id: number;
}

const changedDomainRow = domainRow.extend({
  changed: z.number(),
  in_force_since: z.number().nullable(),
});
export type ChangedDomain = z.infer<typeof changedDomainRow>;

/**
 * Domains that changed after a position, in the order of their last changes. Commands are folded one by one, so no domain
 * ever appears before a position that was read; a domain that changes again moves to the end.
 */
export async function domainsChangedAfter(
  db: Sql,
  schema: string,
  { changed, id }: ChangePosition,
  limit: number,
): Promise<ChangedDomain[]> {
  return await sqlRows(
    db,
    changedDomainRow,
    `SELECT ${columnsOf(changedDomainRow)} FROM ${schema}.domains
     WHERE (changed, id) > ($1, $2) ORDER BY changed, id LIMIT $3`,
    [changed, id, limit],
  );
}

export async function domainReportById(db: Sql, schema: string, id: number): Promise<DomainReport | null> {
  return await sqlRow(
    db,
    domainReportRow,
    `SELECT ${columnsOf(domainReportRow)} FROM ${schema}.domain_reports WHERE id = $1`,
    [id],
  );
}

export interface ReportFilters {
  readonly userId?: number | undefined;
  readonly status?: DomainReport['status'] | undefined;
}

const reportConditions = ({ userId, status }: ReportFilters): { where: string; values: unknown[] } =>
  conditionsOf({ user_id: userId, status });

export async function countReports(db: Sql, schema: string, filters: ReportFilters): Promise<number> {
  const { where, values } = reportConditions(filters);
  return await countOf(db, `SELECT count(*) AS n FROM ${schema}.domain_reports WHERE ${where}`, values);
}

/** Newest first. */
export async function listReports(
  db: Sql,
  schema: string,
  filters: ReportFilters,
  page: Page,
): Promise<DomainReport[]> {
  const { where, values } = reportConditions(filters);
  const select = `SELECT ${columnsOf(domainReportRow)} FROM ${schema}.domain_reports WHERE ${where}`;
  return await pageOf(db, domainReportRow, `${select} ORDER BY id DESC`, values, page);
}
