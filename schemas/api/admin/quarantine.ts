import { z } from 'zod';

import { tokenStandard } from '../../messages/common.ts';
import { envelopeOf, isoTimestamp } from '../common.ts';
import { canonicalHex, uintString } from '../values.ts';

const count = z.int().min(0);

export const quarantineItem = z
  .object({
    id: z.string().meta({
      description: '`<block hash>:<position>` of an event, `<topic>:<partition>:<offset>` of a message',
    }),
    kind: z.enum(['event', 'message']),
    where: z.string(),
    reason: z.string(),
    since: isoTimestamp,
    last_tried: isoTimestamp.nullable().meta({
      description: 'When it was last tried again, and failed; null: it was not',
    }),
    state: z.enum(['open', 'reverted', 'repaired', 'skipped']),
    halts: z.array(z.string()).meta({ description: 'Projections that are halted at this message' }),
    rebuilds: z.array(z.string()).meta({ description: 'Projections whose rebuild ended at this message' }),
  })
  .meta({ id: 'QuarantineItem' });

export type QuarantineItem = z.infer<typeof quarantineItem>;

export const quarantineList = envelopeOf(quarantineItem).meta({ id: 'QuarantineList' });

const quarantinedEvent = z.object({
  block: count,
  block_hash: canonicalHex,
  position: count.meta({ description: 'Of the event in its block' }),
  transaction_hash: canonicalHex,
  contract: z.object({
    address: canonicalHex,
    standard: tokenStandard.nullable().meta({ description: 'null: not looked up' }),
    class_hash: canonicalHex.nullable(),
    basis: z.string().nullable().meta({ description: 'What decided the standard' }),
  }),
  raw: z.object({
    from_address: canonicalHex,
    keys: z.array(canonicalHex),
    data: z.array(canonicalHex),
  }),
  selectors: z.array(z.string()).meta({
    description:
      'Names of the token-event selectors in its first two keys; `unknown selector` if the first key is not one',
  }),
  expected: z
    .array(
      z.object({
        event: z.string(),
        keys: count,
        data: count.nullable().meta({ description: 'null: two spans, of any length' }),
        from: z.string().meta({ example: 'keys[1]' }),
        to: z.string(),
      }),
    )
    .meta({
      description: 'The shapes that events of this name have: how many felts, and where the addresses are',
    }),
  readings: z
    .array(
      z.object({
        standard: tokenStandard,
        problem: z.string().nullable().meta({ description: 'Why it cannot be decoded; null: it can' }),
        transfers: z.array(
          z.object({
            from: canonicalHex,
            to: canonicalHex,
            amount: uintString,
            token_id: uintString.nullable(),
          }),
        ),
      }),
    )
    .meta({ description: 'The event decoded as an event of each standard' }),
  pending_repair: z
    .object({ requested_at: isoTimestamp, attempts: count, next_try_at: isoTimestamp })
    .nullable(),
});

const quarantinedMessage = z.object({
  topic: z.string().nullable(),
  partition: count.nullable(),
  offset: count.nullable(),
  text: z.string().meta({ description: 'The start of the message, as text' }),
});

export const quarantineDetail = quarantineItem
  .extend({
    resolved_at: isoTimestamp.nullable(),
    event: quarantinedEvent.nullable(),
    message: quarantinedMessage.nullable(),
  })
  .meta({ id: 'QuarantineDetail' });
export type QuarantineDetail = z.input<typeof quarantineDetail>;
