import { z } from 'zod';

import { normalDomain } from '../../../domains.ts';
import { CATALOGUE_KINDS, NATURAL_KEYS, catalogueRecord } from '../../../../schemas/catalogue.ts';
import type { CatalogueKind, CatalogueRecord } from '../../../../schemas/catalogue.ts';
import { parseFelt } from '../../../../schemas/felt.ts';
import { hasWhitespaceOrControl, isStorable } from '../../../../schemas/text.ts';
import { parseTimestamp, refuse } from '../../../../api/http/params.ts';

/**
 * Schemas of the records in an operator's file: the API's field names, times in ISO 8601, addresses and hosts in any
 * spelling. A missing field has the default given here.
 */

/** Tokens are published to a topic of their own. */
export const FILE_KINDS = [...CATALOGUE_KINDS, 'tokens'] as const;
export type FileKind = (typeof FILE_KINDS)[number];

export const isFileKind = (text: string): text is FileKind => FILE_KINDS.some((kind) => kind === text);

/** A field parsed from text. */
const read = <T>(of: (text: string) => T | null, message: string) =>
  z.string().transform((text, context): T => of(text) ?? refuse(context, message));

const time = read(
  (text) => parseTimestamp(text)?.getTime() ?? null,
  'Use a date and time such as 2026-01-31T12:00:00Z.',
)
  .pipe(z.int().min(0, 'Use a time after 1970.'))
  .nullable()
  .default(null);
const felt = read(parseFelt, 'Use 0x and up to 64 hex digits, below the prime of the field.');
const host = read(normalDomain, 'Use the name of a host, such as example.org.');
const RATING = 'Use a number from 0 to 9.99 with two places at most.';
/** 4.5, "4.5" and "4.50" are one. */
const rating = z
  .union([z.number(), z.string()], { error: RATING })
  .refine((value) => /^[0-9](\.[0-9]{1,2})?$/.test(String(value)), RATING)
  .transform((value) => Number(value).toFixed(2))
  .default('0.00');
/** A URL that clients may open. */
const link = <S extends z.ZodType<string, string>>(schema: S): S =>
  schema.refine((text) => !hasWhitespaceOrControl(text), 'Use a URL without whitespace.');
const no = z.boolean().default(false);
const yes = z.boolean().default(true);

const { categories, dapps, ads, domains, class_hashes: classHashes, wallets } = catalogueRecord;

const logo = z
  .string()
  .max(2000)
  .refine(isStorable, 'must not contain NUL characters or unpaired surrogates')
  .nullable();

/** A token in a file; missing fields are left unchanged. */
const token = z.object({
  address: felt,
  verified: z.boolean().exactOptional(),
  common: z.boolean().exactOptional(),
  public: z.boolean().exactOptional(),
  hidden: z.boolean().exactOptional(),
  logo: logo.exactOptional(),
});
export type TokenRecord = z.infer<typeof token>;

export type FileRecord<K extends FileKind> = K extends CatalogueKind ? CatalogueRecord<K> : TokenRecord;

export const fileRecord = {
  categories: z.object({
    slug: categories.shape.slug,
    name: categories.shape.name,
    icon: categories.shape.icon.default(''),
  }),
  dapps: z.object({
    slug: dapps.shape.slug.refine(
      (slug) => slug !== 'search',
      '"search" is reserved for the search of dApps.',
    ),
    name: dapps.shape.name,
    tagline: dapps.shape.tagline.default(''),
    description: dapps.shape.description.default(''),
    url: link(dapps.shape.url),
    website_url: link(dapps.shape.website_url).default(''),
    docs_url: link(dapps.shape.docs_url).default(''),
    logo_url: link(dapps.shape.logo_url).default(''),
    banner_url: link(dapps.shape.banner_url).default(''),
    category: dapps.shape.category.default(null),
    tags: dapps.shape.tags.default([]),
    networks: dapps.shape.networks.default([]),
    twitter_url: link(dapps.shape.twitter_url).default(''),
    discord_url: link(dapps.shape.discord_url).default(''),
    telegram_url: link(dapps.shape.telegram_url).default(''),
    github_url: link(dapps.shape.github_url).default(''),
    tvl_usd: dapps.shape.tvl_usd.default(null),
    daily_users: dapps.shape.daily_users.default(0),
    total_transactions: dapps.shape.total_transactions.default(0),
    rating,
    review_count: dapps.shape.review_count.default(0),
    is_featured: no,
    is_verified: no,
    is_active: yes,
    launched_at: time,
  }),
  ads: z
    .object({
      key: ads.shape.key,
      placement: ads.shape.placement,
      title: ads.shape.title,
      description: ads.shape.description.default(''),
      image_url: link(ads.shape.image_url).default(''),
      target_url: link(ads.shape.target_url),
      cta_text: ads.shape.cta_text.default(''),
      network: ads.shape.network.default(null),
      category: ads.shape.category.default(null),
      priority: ads.shape.priority.default(0),
      starts_at: time,
      ends_at: time,
      total_impression_limit: ads.shape.total_impression_limit.default(null),
      is_active: yes,
    })
    .refine(({ starts_at: from, ends_at: to }) => from === null || to === null || from < to, {
      path: ['ends_at'],
      error: 'It must be later than starts_at.',
    }),
  domains: z.object({
    domain: host,
    status: domains.shape.status,
    category: domains.shape.category.toLowerCase().default(''),
    risk_level: domains.shape.risk_level.default(null),
    reason: domains.shape.reason.default(''),
    source: domains.shape.source.default(''),
    evidence_url: link(domains.shape.evidence_url).default(''),
    active: yes,
  }),
  class_hashes: z.object({
    network: classHashes.shape.network,
    account_type: classHashes.shape.account_type,
    class_hash: felt,
    version: classHashes.shape.version.default(''),
    is_active: yes,
    released_at: time,
  }),
  wallets: z.object({
    wallet_address: felt,
    network: wallets.shape.network,
    wallet_type: wallets.shape.wallet_type,
    status: wallets.shape.status.default('active'),
    is_verified: no,
    is_active: yes,
    transaction_count: wallets.shape.transaction_count.default(0),
    last_activity_at: time,
  }),
  tokens: token,
} satisfies { [K in FileKind]: z.ZodType<FileRecord<K>> };

export const fieldsOf = (kind: FileKind): readonly string[] => Object.keys(fileRecord[kind].shape);

/** The fields that identify a record. */
export const fileKeys = (kind: FileKind): readonly string[] =>
  kind === 'tokens' ? ['address'] : NATURAL_KEYS[kind];

/** Fields that are ISO times in a file and unix milliseconds inside. */
const TIMES: ReadonlySet<string> = new Set([
  'launched_at',
  'starts_at',
  'ends_at',
  'released_at',
  'last_activity_at',
]);

/** Converts a stored record to its form in a file. */
export function toFile(record: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(record).map(([field, value]) => [
      field,
      TIMES.has(field) && typeof value === 'number' ? new Date(value).toISOString() : value,
    ]),
  );
}
