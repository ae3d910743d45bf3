import { z } from 'zod';

import { isoTimestamp } from './common.ts';
import { rawEventAnswer } from './events.ts';
import { proofExample } from './proof-example.ts';
import { transferAnswer } from './transfers.ts';
import { canonicalHex, uintString } from './values.ts';

const count = z.int().min(0);
const gasPrice = z.object({ price_in_wei: uintString, price_in_fri: uintString });

const provenBlock = z
  .object({
    number: count,
    hash: canonicalHex,
    parent_hash: canonicalHex,
    timestamp: isoTimestamp,
    sequencer_address: canonicalHex,
    starknet_version: z.string(),
    new_root: canonicalHex,
    transaction_count: count,
    event_count: count,
    state_diff_length: count,
    l1_da_mode: z.enum(['BLOB', 'CALLDATA']),
    l1_gas_price: gasPrice,
    l1_data_gas_price: gasPrice,
    l2_gas_price: gasPrice.nullable().meta({ description: 'Part of the hash from Starknet 0.13.4 on' }),
    state_diff_commitment: canonicalHex,
    transaction_commitment: canonicalHex,
    event_commitment: canonicalHex,
    receipt_commitment: canonicalHex,
  })
  .meta({ description: 'What the hash of the block commits to; `timestamp` as Unix seconds' });

const step = z.union([
  z.object({
    kind: z.literal('binary'),
    side: z.enum(['left', 'right']).meta({ description: 'Of the node on the path' }),
    sibling: canonicalHex,
  }),
  z.object({
    kind: z.literal('edge'),
    length: z.int().min(1).max(64),
    bits: canonicalHex.meta({ description: 'The path of the edge' }),
  }),
]);

export const proofAnswer = z
  .object({
    block: provenBlock,
    event: rawEventAnswer,
    path: z.array(step).meta({ description: 'From the leaf to the root' }),
    root: canonicalHex.meta({ description: 'Equals `event_commitment` of the block' }),
    finality: z.enum(['ACCEPTED_ON_L2', 'ACCEPTED_ON_L1']),
    transfer: transferAnswer,
  })
  .meta({ id: 'TransferProof', example: proofExample });
export type ProofAnswer = z.infer<typeof proofAnswer>;
