import { z } from 'zod';

import { felt, storableText as text, unixMillis } from './messages/common.ts';

/**
 * Catalogue records by kind, as a command carries them: every field is present, times are unix milliseconds, host names are
 * normalized. (Operators' files are parsed elsewhere, where defaults are filled in.)
 */

/** Used in paths and queries; also the name of a network: mainnet, sepolia. */
export const slug = z
  .string()
  .max(100)
  .regex(/^[a-z0-9]+(?:[-_][a-z0-9]+)*$/, 'Use lower-case letters, digits, hyphens and underscores.');
const name = text.min(1).max(200);
const longText = text.max(10_000);
/** A link that clients show: http or https. */
const link = text.max(2000).regex(/^https?:\/\/[^\s/]+/i, 'Use a URL that begins with https:// or http://.');
export const linkOrNone = link.or(z.literal(''));
/** The wallet product, as its vendor names it. */
export const walletType = text.min(1).max(100);
/** Range of a PostgreSQL integer. */
const count = z.int().min(0).max(2_147_483_647);
const bigCount = z.int().min(0);
/**
 * A host as infra/domains.ts normalizes it: a lower-case punycode name without port or trailing dot (labels may begin with
 * a hyphen, as browsers open those), an IPv4 address, or an IPv6 address in brackets.
 */
export const domainName = z
  .string()
  .max(253)
  .regex(/^(?:[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*|\[[0-9a-f:]+\])$/, 'Use a host name or IP address.');

export const domainStatus = z.enum(['whitelisted', 'blacklisted', 'pending']);
export const riskLevel = z.enum(['low', 'medium', 'high']);
export const reportStatus = z.enum(['pending', 'approved', 'rejected']);
export const walletStatus = z.enum(['pending', 'active', 'inactive', 'suspended']);

export const catalogueRecord = {
  categories: z.object({ slug, name, icon: text.max(2000) }),
  dapps: z.object({
    slug,
    name,
    tagline: text.max(500),
    description: longText,
    url: link,
    website_url: linkOrNone,
    docs_url: linkOrNone,
    logo_url: linkOrNone,
    banner_url: linkOrNone,
    /** The category's slug. */
    category: slug.nullable(),
    tags: z.array(text.min(1).max(100)).max(50),
    networks: z.array(slug).max(50),
    twitter_url: linkOrNone,
    discord_url: linkOrNone,
    telegram_url: linkOrNone,
    github_url: linkOrNone,
    tvl_usd: z.number().min(0).nullable(),
    daily_users: count,
    total_transactions: bigCount,
    /** Two decimal places: `4.50`. */
    rating: z.string().regex(/^[0-9]\.[0-9]{2}$/, 'Use a decimal with two places.'),
    review_count: count,
    is_featured: z.boolean(),
    is_verified: z.boolean(),
    is_active: z.boolean(),
    launched_at: unixMillis.nullable(),
  }),
  ads: z.object({
    /** Identifies the ad in import files; not shown by the API. */
    key: slug,
    placement: slug,
    title: name,
    description: longText,
    image_url: linkOrNone,
    target_url: link,
    cta_text: text.max(200),
    /** null: every network. */
    network: slug.nullable(),
    category: slug.nullable(),
    /** The highest is shown first. */
    priority: z.int().min(-2_147_483_648).max(2_147_483_647),
    /** null: no start. */
    starts_at: unixMillis.nullable(),
    /** Exclusive; null: no end. */
    ends_at: unixMillis.nullable(),
    /** null: no limit. */
    total_impression_limit: bigCount.nullable(),
    is_active: z.boolean(),
  }),
  domains: z.object({
    domain: domainName,
    status: domainStatus,
    /** '': unknown. */
    category: text.max(100),
    risk_level: riskLevel.nullable(),
    reason: longText,
    /** Who listed it. */
    source: text.max(200),
    evidence_url: linkOrNone,
    active: z.boolean(),
  }),
  class_hashes: z.object({
    network: slug,
    account_type: slug,
    class_hash: felt,
    version: text.max(100),
    is_active: z.boolean(),
    released_at: unixMillis.nullable(),
  }),
  wallets: z.object({
    wallet_address: felt,
    network: slug,
    wallet_type: walletType,
    status: walletStatus,
    is_verified: z.boolean(),
    is_active: z.boolean(),
    /** Never decreases. */
    transaction_count: bigCount,
    /** Never decreases. */
    last_activity_at: unixMillis.nullable(),
  }),
};
/** Kinds that commands write; tokens have a topic of their own. */
export type CatalogueKind = keyof typeof catalogueRecord;
export const CATALOGUE_KINDS = Object.keys(catalogueRecord) as CatalogueKind[];
export type CatalogueRecord<K extends CatalogueKind> = z.infer<(typeof catalogueRecord)[K]>;

/** Records with the same values in these fields are the same entry. */
export const NATURAL_KEYS = {
  categories: ['slug'],
  dapps: ['slug'],
  ads: ['key'],
  domains: ['domain'],
  class_hashes: ['network', 'account_type', 'class_hash'],
  wallets: ['wallet_address', 'network'],
} as const satisfies { [K in CatalogueKind]: readonly (keyof CatalogueRecord<K>)[] };

/** Upper bound per part of an import, and per kind in it. */
export const MAX_RECORDS_PER_PART = 1000;

const listOf = <T extends z.ZodType>(record: T) => z.array(record).max(MAX_RECORDS_PER_PART).exactOptional();

/** Records by kind. */
export const catalogueRecords = z.object({
  categories: listOf(catalogueRecord.categories),
  dapps: listOf(catalogueRecord.dapps),
  ads: listOf(catalogueRecord.ads),
  domains: listOf(catalogueRecord.domains),
  class_hashes: listOf(catalogueRecord.class_hashes),
  wallets: listOf(catalogueRecord.wallets),
});
