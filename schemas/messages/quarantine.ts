import { z } from 'zod';

import { rawEvent } from './chain-blocks.ts';
import { felt, height, unixMillis } from './common.ts';

export const quarantineMessage = z.discriminatedUnion('type', [
  /** A token event that could not be decoded, with the raw event and its origin. */
  z.object({
    type: z.literal('event.quarantined'),
    v: z.literal(1),
    /** `<block hash>:<position>`, so that an event quarantined twice is one entry. */
    id: z.string(),
    reason: z.string(),
    block: height,
    block_hash: felt,
    position: z.int().min(0),
    transaction_hash: felt,
    event: rawEvent,
    quarantined_at: unixMillis,
  }),
  /** A message that could not be parsed (poison message); its partition is halted until an operator skips it. */
  z.object({
    type: z.literal('message.quarantined'),
    v: z.literal(1),
    /** Made by `messageId`. */
    id: z.string(),
    reason: z.string(),
    topic: z.string(),
    partition: z.int().min(0),
    offset: z.string(),
    /** The first 64 kB of the value, base64. */
    value: z.string(),
    quarantined_at: unixMillis,
  }),
  /** The block was reverted, a repair decoded the event, or an operator skipped the entry. */
  z.object({
    type: z.literal('quarantine.resolved'),
    v: z.literal(1),
    id: z.string(),
    resolution: z.enum(['reverted', 'repaired', 'skipped']),
    resolved_at: unixMillis,
  }),
]);
export type QuarantineMessage = z.infer<typeof quarantineMessage>;

/** Identifies a message in the log. */
export interface MessageRef {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
}

/** The quarantine id of a message. */
export function messageId({ topic, partition, offset }: MessageRef): string {
  return `${topic}:${partition}:${offset}`;
}

/** The message of a quarantine id; null if it is the id of an event. */
export function parseMessageId(id: string): MessageRef | null {
  const [, topic, partition, offset] = /^(.+):(\d+):(\d+)$/.exec(id) ?? [];
  return topic === undefined ? null : { topic, partition: Number(partition), offset: Number(offset) };
}

/** Builds the message that closes an entry. */
export function quarantineResolved(
  id: string,
  resolution: 'reverted' | 'repaired' | 'skipped',
  now: number,
): QuarantineMessage {
  return { type: 'quarantine.resolved', v: 1, id, resolution, resolved_at: now };
}
