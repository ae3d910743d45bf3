import { z } from 'zod';

import { isoTimestamp } from './common.ts';
import { canonicalHex, uintString } from './values.ts';

const success = z.literal(true);
const stale = z.literal(true).optional().meta({
  description: 'Present if the chain did not answer in time and the balance is the last known one',
});

export const balanceData = z
  .object({
    account_address: canonicalHex,
    token_address: canonicalHex,
    balance: uintString,
    balance_usd: z.number().meta({ description: '0 if no price is known' }),
    last_updated: isoTimestamp.meta({
      description:
        'When the chain was last read; transfers indexed since are added. The time of the newest indexed block for a balance computed from transfers alone',
    }),
    stale,
  })
  .meta({ id: 'Balance' });
export type BalanceData = z.input<typeof balanceData>;

export const balanceAnswer = z.object({ success, data: balanceData });

/** Addresses as sent. */
const pairError = z
  .object({ account_address: z.string(), token_address: z.string(), error: z.string() })
  .meta({ id: 'BalanceError' });

export const balancesAnswer = z.object({
  success,
  data: z.array(balanceData),
  errors: z.array(pairError).nullable(),
});

export const accountBalance = z
  .object({
    id: z.int().min(0).meta({ description: 'Stable id derived from account and token' }),
    account: z.object({ address: canonicalHex }),
    token: z.object({
      address: canonicalHex,
      symbol: z.string(),
      name: z.string(),
      decimals: z.int().min(0).max(255),
      current_price_usd: z.string().nullable(),
      logo: z.string().nullable(),
    }),
    balance: uintString,
    balance_usd: z.string().meta({ description: 'Decimal; "0" if no price is known' }),
    last_updated: isoTimestamp,
    stale,
  })
  .meta({ id: 'AccountBalance' });
export type AccountBalanceData = z.input<typeof accountBalance>;

export const accountBalancesAnswer = z.object({
  success,
  count: z.int().min(0),
  data: z.array(accountBalance),
  complete: z.literal(false).optional().meta({
    description:
      'Present if the index does not reach back to the first block or a balance is not known yet; unknown balances are left out and read from the chain',
  }),
});

const balanceHistoryRow = z
  .object({
    time: isoTimestamp,
    block_number: z.int().min(0),
    event_index: z.int().min(0),
    balance: uintString.meta({ description: 'Balance right after this event' }),
    token_price_usd: z.number().nullable(),
    balance_usd: z.number().nullable(),
  })
  .meta({ id: 'BalanceHistoryRow' });

export const balanceHistoryAnswer = z.object({
  success,
  data: z.array(balanceHistoryRow),
  count: z.int().min(0),
  account_address: canonicalHex,
  token_address: canonicalHex,
  start_time: isoTimestamp,
  end_time: isoTimestamp,
  complete_from: isoTimestamp.nullable().optional().meta({
    description:
      'Present if the balance is unknown at the start: the time from which it is known; null if it is never known',
  }),
});
