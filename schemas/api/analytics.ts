import { z } from 'zod';

import { isoTimestamp } from './common.ts';
import { canonicalHex, uintString } from './values.ts';

const count = z.int().min(0);
/** A sum of amounts, which may exceed 256 bits. */
export const sumString = z
  .string()
  .regex(/^(0|[1-9][0-9]*)$/)
  .meta({ description: 'Raw unsigned integer; a sum may exceed 256 bits' });

/** On answers made from tables that are derived after the blocks are indexed. */
const complete = z.literal(false).optional().meta({
  description:
    'Present if indexed blocks have waited for more than 30 seconds to be counted, as during a backfill; with `as_of_block`, if any required block has not been counted',
});

const tokenHolder = z
  .object({
    rank: z.int().min(1).meta({ description: 'From 1, continuing across pages' }),
    account_address: canonicalHex,
    balance: uintString,
    share: z.number().min(0).max(1).meta({ description: 'Of the sum of all holders’ balances' }),
  })
  .meta({ id: 'TokenHolder' });

export const tokenHoldersAnswer = z.object({
  count: count.meta({ description: 'Number of holders' }),
  results: z.array(tokenHolder),
  links: z.object({ next_cursor: z.string().nullable() }),
  complete: complete.meta({
    description: `${complete.description}; also present where not all blocks from 0 on are indexed`,
  }),
});

const tokenPeriod = z
  .object({
    time: isoTimestamp.meta({ description: 'Start of the hour or day' }),
    transfers: count,
    volume: sumString,
    senders: count.meta({ description: 'Different senders' }),
    receivers: count.meta({ description: 'Different receivers' }),
    mints: count.meta({ description: 'Transfers from the zero address' }),
    burns: count.meta({ description: 'Transfers to the zero address' }),
  })
  .meta({ id: 'TokenPeriod' });

export const tokenStatsAnswer = z.object({ results: z.array(tokenPeriod), complete });

export const accountStatsAnswer = z
  .object({
    first_seen: isoTimestamp
      .nullable()
      .meta({ description: 'Time of the first transfer; null if there is none' }),
    last_seen: isoTimestamp.nullable(),
    transfers: count,
    tokens: count.meta({ description: 'Different tokens' }),
    counterparties: count.meta({ description: 'Different other accounts' }),
    fees: z
      .array(z.object({ token_address: canonicalHex, amount: sumString }))
      .meta({ description: 'Fees paid, by token' }),
  })
  .meta({ id: 'AccountStats' });

const chainPeriod = z
  .object({
    time: isoTimestamp.meta({ description: 'Start of the hour or day' }),
    blocks: count,
    transfers: count,
    accounts: count.meta({ description: 'Different senders and receivers' }),
    tokens: count.meta({ description: 'Different tokens' }),
  })
  .meta({ id: 'ChainPeriod' });

export const chainStatsAnswer = z.object({
  results: z.array(chainPeriod),
  top_tokens: z
    .array(z.object({ token_address: canonicalHex, transfers: count }))
    .meta({ description: 'The ten tokens with most transfers in these periods' }),
  complete,
});
