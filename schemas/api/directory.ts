import { z } from 'zod';

import { envelopeOf, isoTimestamp } from './common.ts';
import { canonicalHex } from './values.ts';

const urlOrNone = z.string().meta({ description: 'Empty if there is none' });

const nestedCategory = z
  .object({ id: z.int(), name: z.string(), slug: z.string(), icon: z.string() })
  .meta({ id: 'DappCategoryName' });

export const categoryAnswer = nestedCategory
  .extend({ dapp_count: z.int().min(0).meta({ description: 'Listed dApps of the category' }) })
  .meta({ id: 'DappCategory' });

export const categoryListAnswer = envelopeOf(categoryAnswer);

export const dappAnswer = z
  .object({
    id: z.int(),
    name: z.string(),
    slug: z.string(),
    tagline: z.string(),
    description: z.string(),
    url: z.string(),
    website_url: urlOrNone,
    docs_url: urlOrNone,
    logo_url: urlOrNone,
    banner_url: urlOrNone,
    category: nestedCategory.nullable(),
    tags: z.array(z.string()),
    networks: z.array(z.string()).meta({ example: ['mainnet', 'sepolia'] }),
    twitter_url: urlOrNone,
    discord_url: urlOrNone,
    telegram_url: urlOrNone,
    github_url: urlOrNone,
    tvl_usd: z.number().nullable(),
    daily_users: z.int().min(0),
    total_transactions: z.int().min(0),
    rating: z.string().meta({ description: 'Two decimal places', example: '4.50' }),
    review_count: z.int().min(0),
    is_featured: z.boolean(),
    is_verified: z.boolean(),
    is_active: z.boolean(),
    launched_at: isoTimestamp.nullable(),
    created_at: isoTimestamp,
    updated_at: isoTimestamp,
  })
  .meta({ id: 'Dapp' });
export type DappAnswer = z.infer<typeof dappAnswer>;

export const dappListAnswer = envelopeOf(dappAnswer);

export const discoverAnswer = z.object({
  featured: z.array(dappAnswer),
  recent: z.array(dappAnswer),
  popular: z.array(dappAnswer),
});

export const adAnswer = z
  .object({
    id: z.int(),
    placement: z.string(),
    title: z.string(),
    description: z.string(),
    image_url: urlOrNone,
    target_url: z.string(),
    cta_text: z.string(),
    network: z.string().nullable().meta({ description: 'null: all' }),
    category: z.string().nullable().meta({ description: 'Slug; null: all' }),
    priority: z.int(),
    starts_at: isoTimestamp.nullable(),
    ends_at: isoTimestamp.nullable(),
    total_impression_limit: z.int().min(0).nullable().meta({ description: 'null: unlimited' }),
    impression_count: z.int().min(0),
    click_count: z.int().min(0),
    is_active: z.boolean(),
  })
  .meta({ id: 'Ad' });
export type AdAnswer = z.infer<typeof adAnswer>;

export const classHashAnswer = z
  .object({
    id: z.int(),
    network: z.string(),
    account_type: z.string(),
    class_hash: canonicalHex,
    version: z.string(),
    is_active: z.boolean(),
    released_at: isoTimestamp.nullable(),
    created_at: isoTimestamp,
    updated_at: isoTimestamp,
  })
  .meta({ id: 'AccountClassHash' });
export type ClassHashAnswer = z.infer<typeof classHashAnswer>;

export const classHashListAnswer = envelopeOf(classHashAnswer);

/** Class hash by account type. */
export const latestClassHashesAnswer = z.record(z.string(), canonicalHex);
