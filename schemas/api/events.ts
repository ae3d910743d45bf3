import { z } from 'zod';

import { envelopeOf } from './common.ts';
import { canonicalHex } from './values.ts';

const count = z.int().min(0);

/** An event as the chain has it. */
export const rawEventAnswer = z.object({
  index: count.meta({ description: 'Among all events of the block' }),
  from_address: canonicalHex,
  transaction_hash: canonicalHex,
  keys: z.array(canonicalHex),
  data: z.array(canonicalHex),
});

const eventAnswer = rawEventAnswer
  .extend({
    name: z.string().nullable().meta({
      description:
        'The name whose selector is the first key, or else the second, as in events of components; null: not known to this service',
      example: 'Transfer',
    }),
    block: count,
    block_hash: canonicalHex,
  })
  .meta({ id: 'Event' });

export const eventListAnswer = envelopeOf(eventAnswer);
