import { z } from 'zod';

import { tokenStandards } from '../messages/common.ts';
import { envelopeOf, isoTimestamp } from './common.ts';
import { canonicalHex, uintString } from './values.ts';

/** A transfer in a list: the contract's fields, then the additions `is_fee`, `execution_status` and `kind`. */
export const transferAnswer = z
  .object({
    from_address: canonicalHex,
    to_address: canonicalHex,
    token_address: canonicalHex,
    token_symbol: z.string().meta({ description: 'Empty if the token has none or was not read yet' }),
    token_name: z.string().meta({ description: 'Empty if the token has none or was not read yet' }),
    token_decimals: z.int().min(0).max(255).meta({
      description: 'If the token has none: 0 for erc721 and erc1155, whose values are counts, else 18',
    }),
    value: uintString.meta({ description: 'Raw integer; "1" for erc721, the amount for erc1155' }),
    nft_token_id: z.string().meta({ description: 'Decimal; empty for erc20 and unknown' }),
    txhash: canonicalHex,
    timestamp: isoTimestamp,
    block: z.int().min(0),
    status: z.enum(['ACCEPTED_ON_L2', 'ACCEPTED_ON_L1']),
    fee: uintString.meta({ description: "The transaction's actual fee, raw integer in `fee_unit`" }),
    fee_unit: canonicalHex.meta({ description: 'Address of the token the fee was paid in' }),
    event_index: z.int().min(0).meta({
      description:
        'Position of the event in the block; later items of a batch event add 1048576 each. Unique with `block`',
    }),
    is_fee: z.boolean().meta({ description: "Whether the transfer paid the transaction's fee" }),
    execution_status: z.enum(['SUCCEEDED', 'REVERTED']),
    kind: z.enum(tokenStandards),
  })
  .meta({ id: 'Transfer' });
export type TransferAnswer = z.infer<typeof transferAnswer>;

export const transferListAnswer = envelopeOf(transferAnswer);

/** A flat array, lowest (block, event_index) first. */
export const traceAnswer = z.array(
  z
    .object({
      from: canonicalHex,
      to: canonicalHex,
      value: uintString.meta({ description: 'Raw integer; "1" for erc721, the amount for erc1155' }),
      txhash: canonicalHex,
      timestamp: isoTimestamp,
      block: z.int().min(0),
      status: z.enum(['ACCEPTED_ON_L2', 'ACCEPTED_ON_L1']),
      fee: uintString.meta({ description: "The transaction's actual fee" }),
    })
    .meta({ id: 'TracedTransfer' }),
);
export type TraceAnswer = z.infer<typeof traceAnswer>;
