import { randomUUID } from 'node:crypto';

import type { z } from 'zod';

import type { CatalogueRecord, catalogueRecords } from '../../schemas/catalogue.ts';
import { toFelt } from '../../schemas/felt.ts';
import type { ApiWorld } from './api-world.ts';

/** Catalogue records as commands carry them, with defaults for the fields a test does not set. */

export const aDapp = (
  slug: string,
  more: Partial<CatalogueRecord<'dapps'>> = {},
): CatalogueRecord<'dapps'> => ({
  slug,
  name: slug,
  tagline: '',
  description: '',
  url: `https://${slug}.example`,
  website_url: '',
  docs_url: '',
  logo_url: '',
  banner_url: '',
  category: null,
  tags: [],
  networks: ['mainnet'],
  twitter_url: '',
  discord_url: '',
  telegram_url: '',
  github_url: '',
  tvl_usd: null,
  daily_users: 0,
  total_transactions: 0,
  rating: '0.00',
  review_count: 0,
  is_featured: false,
  is_verified: false,
  is_active: true,
  launched_at: null,
  ...more,
});

export const anAd = (key: string, more: Partial<CatalogueRecord<'ads'>> = {}): CatalogueRecord<'ads'> => ({
  key,
  placement: 'top',
  title: key,
  description: '',
  image_url: '',
  target_url: 'https://ad.example',
  cta_text: '',
  network: null,
  category: null,
  priority: 0,
  starts_at: null,
  ends_at: null,
  total_impression_limit: null,
  is_active: true,
  ...more,
});

export const aClassHash = (
  hash: bigint,
  more: Partial<CatalogueRecord<'class_hashes'>> = {},
): CatalogueRecord<'class_hashes'> => ({
  network: 'mainnet',
  account_type: 'argent',
  class_hash: toFelt(hash),
  version: '',
  is_active: true,
  released_at: null,
  ...more,
});

export const aDomain = (
  domain: string,
  more: Partial<CatalogueRecord<'domains'>> = {},
): CatalogueRecord<'domains'> => ({
  domain,
  status: 'blacklisted',
  category: 'phishing',
  risk_level: 'high',
  reason: `of ${domain}`,
  source: 'test',
  evidence_url: '',
  active: true,
  ...more,
});

export const aWallet = (
  address: bigint,
  more: Partial<CatalogueRecord<'wallets'>> = {},
): CatalogueRecord<'wallets'> => ({
  wallet_address: toFelt(address),
  network: 'mainnet',
  wallet_type: 'braavos',
  status: 'active',
  is_verified: false,
  is_active: true,
  transaction_count: 0,
  last_activity_at: null,
  ...more,
});

/** Imports records through the log and returns the outcome. */
export async function importRecords(
  { commands }: Pick<ApiWorld, 'commands'>,
  ...parts: readonly z.infer<typeof catalogueRecords>[]
): Promise<Readonly<Record<string, unknown>>> {
  const importId = randomUUID();
  for (const [part, records] of parts.entries()) {
    const body = { import_id: importId, part, records };
    await commands.submit({ type: 'catalogue.part', actor: 'operator', body });
  }
  const body = { import_id: importId, parts: parts.length };
  const { accepted, result } = await commands.submit({ type: 'catalogue.import', actor: 'operator', body });
  if (!accepted) throw new Error(JSON.stringify(result));
  return result;
}
