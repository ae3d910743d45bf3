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
    /** Of `messageId`. */
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

/** Where a message lies in the log: `offset` is that of its partition. */
export interface MessageRef {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
}

/** The id under which a message is quarantined. */
export function messageId({ topic, partition, offset }: MessageRef): string {
  return `${topic}:${partition}:${offset}`;
}

/** The place that the id of a message names; null for the id of an event. */
export function parseMessageId(id: string): MessageRef | null {
  const [, topic, partition, offset] = /^(.+):(\d+):(\d+)$/.exec(id) ?? [];
  return topic === undefined ? null : { topic, partition: Number(partition), offset: Number(offset) };
}

/** What settles an entry. */
export function quarantineResolved(
  id: string,
  resolution: 'reverted' | 'repaired' | 'skipped',
  now: number,
): QuarantineMessage {
  return { type: 'quarantine.resolved', v: 1, id, resolution, resolved_at: now };
}
