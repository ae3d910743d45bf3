import { z } from 'zod';

import { isoTimestamp } from './common.ts';
import { canonicalHex } from './values.ts';

const count = z.int().min(0);

export const publicVerificationAnswer = z
  .object({
    heights: z.object({
      first: count.nullable().meta({ description: 'Lowest indexed height; null: nothing is indexed' }),
      last: count.nullable(),
      verified: count.meta({
        description:
          'Blocks whose events match the commitment in their header; without events: that of the empty tree',
      }),
      unverifiable: count.meta({
        description:
          'All other indexed blocks, the mismatched and the unchecked ones included. Together with `verified` it is the number of indexed heights',
      }),
      reasons: z
        .object({
          old_version: count.meta({ description: 'Before Starknet 0.13.2: a commitment of another kind' }),
          no_commitment: count.meta({ description: 'The node did not give the commitment' }),
          mismatched: count.meta({ description: 'The events do not match the commitment' }),
          not_checked: count.meta({ description: 'Not compared, as most blocks of a backfill' }),
        })
        .meta({ description: 'How many blocks are unverifiable for each reason' }),
    }),
    commitments: z
      .array(
        z.object({
          commitment: z.enum(['block_hash', 'events', 'receipts', 'transactions']),
          starknet_version: z.string(),
          outcome: z.enum(['verified', 'mismatched', 'incomplete', 'refused']).meta({
            description:
              'incomplete: the node did not give what is compared; refused: not indexed, and fetched again',
          }),
          blocks: count.meta({ description: 'Fetched blocks, each as often as it was compared' }),
          from: count.nullable().meta({ description: 'The lowest of their heights; null: not known' }),
          to: count.nullable(),
          at: isoTimestamp.meta({ description: 'When the last of them was counted' }),
        }),
      )
      .meta({
        description:
          'Outcomes of comparing blocks from Starknet 0.13.2 on with their header: the block hash, and the commitments to transactions (hash and signature), events and receipts (fee, messages, revert reason, L1 gas). The state diff is not recomputed: the hash covers only its commitment. At most 1000 entries',
      }),
    conservation: z
      .object({
        tokens: count.meta({ description: 'ERC-20 tokens whose balance changes were summed' }),
        nonzero: z
          .array(
            z.object({
              token_address: canonicalHex,
              sum: z
                .string()
                .meta({ description: 'Raw amount as a decimal, may be negative', example: '-5' }),
            }),
          )
          .meta({ description: 'Tokens whose sum is not zero; at most 1000' }),
        at: isoTimestamp.nullable().meta({ description: 'When it was computed; null: not yet' }),
        to: count.nullable().meta({ description: 'Up to which height' }),
      })
      .meta({
        description:
          'The balance changes of a token over all accounts, the zero address included, sum to zero. Computed every minute; for a large index, at most 2 % of the time',
      }),
    prices: z
      .object({
        tokens: count.meta({ description: 'Tokens whose last reading from the price feed gave an answer' }),
        refused: z
          .array(
            z.object({
              reason: z
                .string()
                .meta({ description: 'As `jump`: too far from the last price, not confirmed yet' }),
              tokens: count,
            }),
          )
          .meta({ description: 'How many of these readings were not published, by reason' }),
        from: isoTimestamp.nullable().meta({ description: 'The earliest of these readings; null: none' }),
        to: isoTimestamp.nullable(),
      })
      .meta({
        description:
          'Plausibility of the last price reading of each token; implausible prices are not published',
      }),
    last_verify: z
      .object({ at: isoTimestamp, from: count.nullable(), to: count.nullable(), differences: count })
      .nullable()
      .meta({
        description:
          'The heights that a conclusive `tds verify` compared, and the differences that remained: the newest of the runs over the most heights or, if a later run left differences, the latest of those',
      }),
    last_rebuild: z
      .object({
        projection: z.string().meta({ description: 'Several are separated by commas' }),
        at: isoTimestamp,
        rows: count.meta({ description: 'Rows that were compared with the served ones' }),
        differences: count.meta({ description: 'Ranges in which they differed' }),
      })
      .nullable()
      .meta({ description: 'The last rebuild that has finished' }),
    quarantined: z
      .object({
        events: count,
        contracts: count.meta({ description: 'Different contracts of these events' }),
      })
      .meta({ description: 'Events that could not be decoded' }),
    updated_at: isoTimestamp,
  })
  .meta({
    id: 'Verification',
    example: {
      heights: {
        first: 0,
        last: 1_199_999,
        verified: 310_500,
        unverifiable: 889_500,
        reasons: { old_version: 640_000, no_commitment: 0, mismatched: 0, not_checked: 249_500 },
      },
      commitments: [
        {
          commitment: 'receipts',
          starknet_version: '0.14.1',
          outcome: 'verified',
          blocks: 310_500,
          from: 640_000,
          to: 1_199_999,
          at: '2026-01-02T03:04:01.000Z',
        },
      ],
      conservation: { tokens: 5321, nonzero: [], at: '2026-01-02T03:04:00.000Z', to: 1_199_998 },
      prices: {
        tokens: 412,
        refused: [{ reason: 'jump', tokens: 2 }],
        from: '2026-01-02T03:00:00.000Z',
        to: '2026-01-02T03:04:03.000Z',
      },
      last_verify: { at: '2026-01-01T00:10:12.345Z', from: 0, to: 1_190_000, differences: 0 },
      last_rebuild: {
        projection: 'transfers',
        at: '2025-12-30T12:00:00.000Z',
        rows: 80_000_000,
        differences: 0,
      },
      quarantined: { events: 3, contracts: 1 },
      updated_at: '2026-01-02T03:04:05.678Z',
    },
  });
export type PublicVerificationAnswer = z.infer<typeof publicVerificationAnswer>;
