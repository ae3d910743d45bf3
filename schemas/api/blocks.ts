import { z } from 'zod';

import { eventCheck } from '../messages/chain-blocks.ts';
import { sumString } from './analytics.ts';
import { isoTimestamp } from './common.ts';
import { canonicalHex } from './values.ts';

const count = z.int().min(0);

export const blockAnswer = z
  .object({
    height: count,
    hash: canonicalHex,
    parent_hash: canonicalHex,
    timestamp: isoTimestamp,
    status: z.enum(['ACCEPTED_ON_L2', 'ACCEPTED_ON_L1']),
    transactions: count,
    events: count,
    transfers: count.meta({ description: 'As `/api/transfers/?block=` counts them' }),
    event_check: z.enum([...eventCheck.options, 'not_checked']).meta({
      description:
        'Comparison of the events with the commitment in the header. `old_version`: it is of another kind, from before Starknet 0.13.2; `no_commitment`: the node did not give it',
    }),
    fees: z
      .array(z.object({ token_address: canonicalHex, amount: sumString }))
      .meta({ description: 'Sums of the transfers that are marked as fees, by token' }),
  })
  .meta({ id: 'Block' });
