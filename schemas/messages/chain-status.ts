import { z } from 'zod';

import { felt, height, unixMillis } from './common.ts';

const at = { v: z.literal(1), observed_at: unixMillis };

export const chainStatusMessage = z.discriminatedUnion('type', [
  /** The chain of this log and the capabilities of its node; written at first start. */
  z.object({
    type: z.literal('network.identified'),
    ...at,
    chain_id: felt,
    spec_version: z.string(),
    has_header_counts: z.boolean(),
    has_l1_tag: z.boolean(),
  }),
  z.object({ type: z.literal('head.seen'), ...at, height, hash: felt }),
  /** Blocks at or below this height are accepted on L1 and can no longer be reverted. */
  z.object({
    type: z.literal('l1.accepted'),
    ...at,
    height,
    /**
     * The newest indexed block that is accepted on L1; and, by partition, the end of `chain.blocks` after that was found: up
     * to there, the log reverts every other block that it has at or below that height. Missing while there is none, and in older messages.
     */
    final: z.object({ height, log_ends: z.array(z.int().min(0)) }).optional(),
  }),
  z.object({
    type: z.literal('chunk.opened'),
    ...at,
    name: z.string(),
    start: height,
    end: height.nullable(),
  }),
  z.object({ type: z.literal('chunk.finished'), ...at, name: z.string() }),
]);
export type ChainStatusMessage = z.infer<typeof chainStatusMessage>;

/** `pg_notify` channel notified when blocks were indexed or reverted, or the height accepted on L1 has risen. */
export const INDEXED_CHANNEL = 'tds_indexed';
