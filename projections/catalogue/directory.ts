import { z } from 'zod';

import { countOf, sqlRow, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { felt } from '../../schemas/messages/common.ts';
import { columnsOf, conditionsOf, pageOf } from './pages.ts';
import type { Page } from './pages.ts';
import { searchOf } from './words.ts';

/** Queries of the operators' directory: categories, dApps, ads, class hashes. Times are unix milliseconds. */

const categoryRow = z.object({ id: z.number(), name: z.string(), slug: z.string(), icon: z.string() });
const categoryWithCount = categoryRow.extend({ dapp_count: z.number() });
/** `dapp_count` counts active dApps only. */
export type Category = z.infer<typeof categoryWithCount>;

const selectCategories = (schema: string): string => `
  SELECT id, name, slug, icon,
    (SELECT count(*) FROM ${schema}.dapps d WHERE d.category = c.slug AND d.is_active) AS dapp_count
  FROM ${schema}.categories c`;

export async function countCategories(db: Sql, schema: string): Promise<number> {
  return await countOf(db, `SELECT count(*) AS n FROM ${schema}.categories`);
}

/** Ordered by name. */
export async function listCategories(db: Sql, schema: string, page: Page): Promise<Category[]> {
  return await pageOf(
    db,
    categoryWithCount,
    `${selectCategories(schema)} ORDER BY lower(name), id`,
    [],
    page,
  );
}

export async function categoryBySlug(db: Sql, schema: string, slug: string): Promise<Category | null> {
  return await sqlRow(db, categoryWithCount, `${selectCategories(schema)} WHERE slug = $1`, [slug]);
}

const dappRow = z.object({
  id: z.number(),
  name: z.string(),
  slug: z.string(),
  tagline: z.string(),
  description: z.string(),
  url: z.string(),
  website_url: z.string(),
  docs_url: z.string(),
  logo_url: z.string(),
  banner_url: z.string(),
  category: categoryRow.nullable(),
  tags: z.array(z.string()),
  networks: z.array(z.string()),
  twitter_url: z.string(),
  discord_url: z.string(),
  telegram_url: z.string(),
  github_url: z.string(),
  tvl_usd: z.number().nullable(),
  daily_users: z.number(),
  total_transactions: z.number(),
  rating: z.string(),
  review_count: z.number(),
  is_featured: z.boolean(),
  is_verified: z.boolean(),
  is_active: z.boolean(),
  launched_at: z.number().nullable(),
  created_at: z.number(),
  updated_at: z.number(),
});
/** `category` is null if the dApp has none. */
export type Dapp = z.infer<typeof dappRow>;

const selectDapps = (schema: string): string => `
  SELECT ${Object.keys(dappRow.shape)
    .map((column) => (column === 'category' ? CATEGORY : `d.${column}`))
    .join(', ')}
  FROM ${schema}.dapps d LEFT JOIN ${schema}.categories c ON c.slug = d.category`;
const CATEGORY = `CASE WHEN c.id IS NOT NULL
  THEN json_build_object('id', c.id, 'name', c.name, 'slug', c.slug, 'icon', c.icon) END AS category`;

/** Absent fields do not filter. */
export interface DappFilters {
  /** Slug of a category. */
  readonly category?: string | undefined;
  readonly network?: string | undefined;
  /** Case-insensitive. */
  readonly tag?: string | undefined;
  readonly featured?: boolean | undefined;
  readonly verified?: boolean | undefined;
  /** Words in name, tags or description, or a substring of the name. */
  readonly text?: string | undefined;
}

/** All orders are total. `listed`: best text match, then featured, then name. */
const ORDERS = {
  listed: 'd.is_featured DESC, lower(d.name), d.id',
  recent: 'd.created_at DESC, d.id DESC',
  popular:
    'd.daily_users DESC, d.total_transactions DESC, d.rating COLLATE "C" DESC, d.review_count DESC, d.id',
} as const;
export type DappOrder = keyof typeof ORDERS;

function dappConditions(filters: DappFilters): { where: string; search: string | null; values: unknown[] } {
  const values: unknown[] = [];
  const bind = (value: unknown): string => `$${values.push(value)}`;
  const conditions = ['d.is_active'];
  if (filters.category !== undefined) conditions.push(`d.category = ${bind(filters.category)}`);
  if (filters.network !== undefined) conditions.push(`d.networks ? ${bind(filters.network)}`);
  if (filters.tag !== undefined) {
    const tag = bind(filters.tag);
    conditions.push(
      `EXISTS (SELECT 1 FROM jsonb_array_elements_text(d.tags) AS one (tag) WHERE lower(tag) = lower(${tag}))`,
    );
  }
  if (filters.featured !== undefined) conditions.push(`d.is_featured = ${bind(filters.featured)}`);
  if (filters.verified !== undefined) conditions.push(`d.is_verified = ${bind(filters.verified)}`);
  const search = filters.text === undefined ? null : searchOf(filters.text, bind);
  if (filters.text !== undefined) {
    const isInName = `strpos(lower(d.name), lower(${bind(filters.text.trim())})) > 0`;
    conditions.push(search === null ? isInName : `(d.words @@ ${search} OR ${isInName})`);
  }
  return { where: conditions.join(' AND '), search, values };
}

/** Active dApps only, as in all lists. */
export async function countDapps(db: Sql, schema: string, filters: DappFilters): Promise<number> {
  const { where, values } = dappConditions(filters);
  return await countOf(db, `SELECT count(*) AS n FROM ${schema}.dapps d WHERE ${where}`, values);
}

export async function listDapps(
  db: Sql,
  schema: string,
  filters: DappFilters,
  page: Page,
  order: DappOrder = 'listed',
): Promise<Dapp[]> {
  const { where, search, values } = dappConditions(filters);
  const rank = search === null ? '' : `ts_rank(d.words, ${search}) DESC, `;
  const sql = `${selectDapps(schema)} WHERE ${where} ORDER BY ${rank}${ORDERS[order]}`;
  return await pageOf(db, dappRow, sql, values, page);
}

/** Null if it does not exist or is inactive. */
export async function dappBySlug(db: Sql, schema: string, slug: string): Promise<Dapp | null> {
  return await sqlRow(db, dappRow, `${selectDapps(schema)} WHERE d.slug = $1 AND d.is_active`, [slug]);
}

const adRow = z.object({
  id: z.number(),
  placement: z.string(),
  title: z.string(),
  description: z.string(),
  image_url: z.string(),
  target_url: z.string(),
  cta_text: z.string(),
  /** null: every network. */
  network: z.string().nullable(),
  category: z.string().nullable(),
  priority: z.number(),
  starts_at: z.number().nullable(),
  ends_at: z.number().nullable(),
  total_impression_limit: z.number().nullable(),
  is_active: z.boolean(),
});
export type Ad = z.infer<typeof adRow>;

/** All ads of a placement, including those not to be shown now. */
export async function adsOfPlacement(db: Sql, schema: string, placement: string): Promise<Ad[]> {
  return await sqlRows(
    db,
    adRow,
    `SELECT ${columnsOf(adRow)} FROM ${schema}.ads WHERE placement = $1 ORDER BY id`,
    [placement],
  );
}

export async function isKnownAd(db: Sql, schema: string, id: number): Promise<boolean> {
  return (await countOf(db, `SELECT count(*) AS n FROM ${schema}.ads WHERE id = $1`, [id])) > 0;
}

const classHashRow = z.object({
  id: z.number(),
  network: z.string(),
  account_type: z.string(),
  class_hash: felt,
  version: z.string(),
  is_active: z.boolean(),
  released_at: z.number().nullable(),
  created_at: z.number(),
  updated_at: z.number(),
});
export type ClassHash = z.infer<typeof classHashRow>;
const CLASS_HASH_COLUMNS = columnsOf(classHashRow);

/** Newest first; entries without a release time come last, the later listed first. */
const NEWEST = 'released_at DESC NULLS LAST, id DESC';

/** Absent fields do not filter. */
export interface ClassHashFilters {
  readonly network?: string | undefined;
  readonly account_type?: string | undefined;
  readonly is_active?: boolean | undefined;
}

export async function countClassHashes(db: Sql, schema: string, filters: ClassHashFilters): Promise<number> {
  const { where, values } = conditionsOf({ ...filters });
  return await countOf(db, `SELECT count(*) AS n FROM ${schema}.class_hashes WHERE ${where}`, values);
}

/** Ordered by network and account type. */
export async function listClassHashes(
  db: Sql,
  schema: string,
  filters: ClassHashFilters,
  page: Page,
): Promise<ClassHash[]> {
  const { where, values } = conditionsOf({ ...filters });
  const sql = `SELECT ${CLASS_HASH_COLUMNS} FROM ${schema}.class_hashes WHERE ${where}
    ORDER BY network, account_type, ${NEWEST}`;
  return await pageOf(db, classHashRow, sql, values, page);
}

export async function classHashById(db: Sql, schema: string, id: number): Promise<ClassHash | null> {
  return await sqlRow(
    db,
    classHashRow,
    `SELECT ${CLASS_HASH_COLUMNS} FROM ${schema}.class_hashes WHERE id = $1`,
    [id],
  );
}

/** By their numbers: 0.10.0 is above 0.9.0. */
const versions = new Intl.Collator('en', { numeric: true });

/**
 * The newest active class of each account type, in one network or in all. Of a type whose classes have no release time,
 * the one with the highest version.
 */
export async function latestClassHashes(
  db: Sql,
  schema: string,
  network: string | undefined,
): Promise<ClassHash[]> {
  const { where, values } = conditionsOf({ network, is_active: true });
  const rows = await sqlRows(
    db,
    classHashRow,
    `SELECT ${CLASS_HASH_COLUMNS} FROM ${schema}.class_hashes WHERE ${where} ORDER BY account_type, ${NEWEST}`,
    values,
  );
  const latest = new Map<string, ClassHash>();
  for (const row of rows) {
    const found = latest.get(row.account_type);
    const isHigher = found?.released_at === null && versions.compare(row.version, found.version) > 0;
    if (found === undefined || isHigher) latest.set(row.account_type, row);
  }
  return [...latest.values()];
}
