import { z } from 'zod';

import { walletStatus } from '../catalogue.ts';
import { envelopeOf, isoTimestamp } from './common.ts';
import { canonicalHex } from './values.ts';

export const walletAnswer = z
  .object({
    id: z.int(),
    wallet_address: canonicalHex,
    network: z.string().meta({ example: 'mainnet' }),
    wallet_type: z.string(),
    status: walletStatus,
    is_verified: z.boolean(),
    is_active: z.boolean(),
    transaction_count: z.int().min(0),
    last_activity_at: isoTimestamp.nullable().meta({ description: 'null: not reported yet' }),
    created_at: isoTimestamp,
    updated_at: isoTimestamp,
  })
  .meta({ id: 'Wallet' });
export type WalletAnswer = z.infer<typeof walletAnswer>;

export const walletListAnswer = envelopeOf(walletAnswer);

export const walletStatsAnswer = z
  .object({
    network: z.string().nullable().meta({ description: 'null: all' }),
    total_wallets: z.int().min(0),
    active_wallets: z.int().min(0),
    verified_wallets: z.int().min(0),
  })
  .meta({ id: 'WalletStats' });

export const walletLookupAnswer = z
  .object({
    wallet_address: canonicalHex,
    network: z.string().nullable().meta({ description: 'As requested; null: any' }),
    is_registered: z.boolean(),
    wallet: walletAnswer.nullable(),
  })
  .meta({ id: 'WalletLookup' });
