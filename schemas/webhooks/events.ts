import { z } from 'zod';

import { isoTimestamp } from '../api/common.ts';
import { canonicalHex, uintString } from '../api/values.ts';
import { tokenStandards } from '../messages/common.ts';

/** The events of webhooks, and the shape of every body that is sent. */

/** Events that a webhook can subscribe to. */
export const WEBHOOK_EVENTS = [
  'transfer.created',
  'balance.changed',
  'token.launched',
  'price.threshold',
  'transfer.reverted',
] as const;
export type WebhookEvent = (typeof WEBHOOK_EVENTS)[number];

/** Events of deliveries: those, and the event of a test. */
export const DELIVERED_EVENTS = [...WEBHOOK_EVENTS, 'ping'] as const;

const unixSeconds = z.int().min(0).meta({ description: "The block's time in Unix seconds" });
const height = z.int().min(0);
const usd = z.string().regex(/^(0|[1-9][0-9]*)(\.[0-9]+)?$/);
const eventIndex = z.int().min(0).meta({ description: 'As in `/api/transfers/`: unique with `block`' });

const transferData = z.object({
  token_address: canonicalHex,
  from_address: canonicalHex,
  to_address: canonicalHex,
  value: uintString.meta({ description: 'Raw integer; "1" for erc721, the amount for erc1155' }),
  txhash: canonicalHex,
  block: height,
  timestamp: unixSeconds,
  fee: uintString.meta({ description: "The transaction's actual fee, raw integer in `fee_unit`" }),
  fee_unit: canonicalHex,
  event_type: z.enum(tokenStandards).meta({ description: 'Standard of the token' }),
  event_index: eventIndex,
  nft_token_id: z.string().meta({ description: 'Decimal; empty for erc20 and unknown' }),
});

const balanceData = z.object({
  account_address: canonicalHex,
  token_address: canonicalHex,
  balance: uintString.nullable().meta({ description: 'Right after the transfer; null if unknown' }),
  previous_balance: uintString.nullable().meta({ description: 'Right before the transfer; null if unknown' }),
  change: z
    .string()
    .regex(/^(0|-?[1-9][0-9]{0,77})$/)
    .meta({ description: 'Raw signed integer' }),
  balance_usd: usd.nullable(),
  token_price_usd: usd.nullable(),
  block: height,
  event_index: eventIndex,
  txhash: canonicalHex,
  timestamp: unixSeconds,
});

const launchData = z.object({
  token_address: canonicalHex,
  symbol: z.string().meta({ description: 'Empty if the contract has none' }),
  name: z.string().meta({ description: 'Empty if the contract has none' }),
  decimals: z.int().min(0).max(255),
  logo: z.string().nullable(),
  is_erc20: z.boolean(),
  is_erc721: z.boolean(),
  is_erc1155: z.boolean(),
  verified: z.boolean(),
  block: height.nullable().meta({ description: 'In which the service first saw the token' }),
  txhash: canonicalHex.nullable().meta({
    description: 'Of its first transfer in the block; null, like the time, if the block is not indexed',
  }),
  timestamp: unixSeconds.nullable(),
});

const priceData = z.object({
  token_address: canonicalHex,
  previous_price: usd,
  new_price: usd,
  crossed_above: z.boolean(),
  crossed_below: z.boolean(),
  threshold_above: z.string().meta({ description: 'Empty if the subscription has none' }),
  threshold_below: z.string().meta({ description: 'Empty if the subscription has none' }),
});

const pingData = z.object({ webhook_id: z.int(), message: z.literal('Test delivery') });

const bodyOf = <E extends string, D extends z.ZodType>(event: E, data: D) =>
  z.object({ event: z.literal(event), created_at: isoTimestamp, data });

/** The body of a delivery, by its event. `created_at` has milliseconds. */
export const webhookBody = z
  .discriminatedUnion('event', [
    bodyOf('transfer.created', transferData),
    bodyOf('balance.changed', balanceData),
    bodyOf('token.launched', launchData),
    bodyOf('price.threshold', priceData),
    bodyOf('transfer.reverted', transferData),
    bodyOf('ping', pingData),
  ])
  .meta({ id: 'WebhookBody' });
export type WebhookBody = z.infer<typeof webhookBody>;
/** The body of one event: `WebhookBodyOf<'transfer.created'>`. */
export type WebhookBodyOf<E extends WebhookBody['event']> = Extract<WebhookBody, { event: E }>;

const STRK = '0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const SENDER = '0x0213c67ed78bc280887234fe5ed5e77272465317978ae86c25a71531d9332a2d';
const RECEIVER = '0x03f1e3a2b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f';
const TRANSACTION = '0x05b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90';
const created_at = '2026-01-02T03:04:05.678Z';
const transferPlace = { block: 4_321_000, event_index: 17, txhash: TRANSACTION, timestamp: 1_767_323_045 };

const transfer = {
  token_address: STRK,
  from_address: SENDER,
  to_address: RECEIVER,
  value: '2500000000000000000',
  fee: '1200000000000000',
  fee_unit: STRK,
  event_type: 'erc20',
  nft_token_id: '',
  ...transferPlace,
} as const;

/** Every event that a webhook can subscribe to: when it is sent, and an example body. */
export const eventCatalogue: {
  readonly [E in WebhookEvent]: { readonly description: string; readonly example: WebhookBodyOf<E> };
} = {
  'transfer.created': {
    description: 'A token transfer that involves a watched address or token was included in the chain.',
    example: { event: 'transfer.created', created_at, data: transfer },
  },
  'balance.changed': {
    description: 'The balance of a watched account and token changed.',
    example: {
      event: 'balance.changed',
      created_at,
      data: {
        account_address: SENDER,
        token_address: STRK,
        balance: '7500000000000000000',
        previous_balance: '10000000000000000000',
        change: '-2500000000000000000',
        balance_usd: '0.9375',
        token_price_usd: '0.125',
        ...transferPlace,
      },
    },
  },
  'token.launched': {
    description: 'The service has found a new token.',
    example: {
      event: 'token.launched',
      created_at,
      data: {
        token_address: STRK,
        symbol: 'STRK',
        name: 'Starknet Token',
        decimals: 18,
        logo: null,
        is_erc20: true,
        is_erc721: false,
        is_erc1155: false,
        verified: false,
        block: transferPlace.block,
        txhash: TRANSACTION,
        timestamp: transferPlace.timestamp,
      },
    },
  },
  'price.threshold': {
    description:
      'The price of a token rose to `price_above` or above it, or fell to `price_below` or below it.',
    example: {
      event: 'price.threshold',
      created_at,
      data: {
        token_address: STRK,
        previous_price: '0.119',
        new_price: '0.125',
        crossed_above: true,
        crossed_below: false,
        threshold_above: '0.12',
        threshold_below: '',
      },
    },
  },
  'transfer.reverted': {
    description:
      'A transfer that was sent as `transfer.created` is no longer in the chain: a reorg removed its block, and ten blocks later no block of the new fork includes the transfer.',
    example: { event: 'transfer.reverted', created_at, data: transfer },
  },
};
