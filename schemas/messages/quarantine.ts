import { z } from 'zod';

import { rawEvent } from './chain-blocks.ts';
import { felt, height, unixMillis } from './common.ts';

export const quarantineMessage = z.discriminatedUnion('type', [
  /** A token event that could not be understood: the raw event and where it came from. Nothing was guessed. */
  z.object({
    type: z.literal('event.quarantined'),
    v: z.literal(1),
    /** `<block hash>:<position>`: the same event quarantined twice is one. */
    id: z.string(),
    reason: z.string(),
    block: height,
    block_hash: felt,
    position: z.int().min(0),
    transaction_hash: felt,
    event: rawEvent,
    quarantined_at: unixMillis,
  }),
  /** A message that could not be parsed; its partition is halted until an operator skips it by name. */
  z.object({
    type: z.literal('message.quarantined'),
    v: z.literal(1),
    /** `<topic>:<partition>:<offset>`. */
    id: z.string(),
    reason: z.string(),
    topic: z.string(),
    partition: z.int().min(0),
    offset: z.string(),
    /** The first 64 kB of the value, base64. */
    value: z.string(),
    quarantined_at: unixMillis,
  }),
  /** The block that held it was reverted, or a repair made sense of it. */
  z.object({
    type: z.literal('quarantine.resolved'),
    v: z.literal(1),
    id: z.string(),
    resolution: z.enum(['reverted', 'repaired', 'skipped']),
    resolved_at: unixMillis,
  }),
]);
export type QuarantineMessage = z.infer<typeof quarantineMessage>;
