import { z } from 'zod';

import { isoTimestamp } from '../common.ts';

const count = z.int().min(0).nullable();
const rate = z.number().min(0).nullable();

export const historyAnswer = z
  .object({
    step_seconds: z.int(),
    results: z
      .array(
        z.object({
          time: isoTimestamp.meta({ description: 'Start of the step' }),
          head_height: count,
          log_height: count,
          indexed_height: count,
          lag_blocks: count.meta({
            description: 'Blocks of the node that cannot be queried yet; for a minute, the maximum',
          }),
          lag_seconds: z.number().min(0).nullable().meta({
            description:
              'Age of the newest indexed block while it is not the head; 0 at the head; for a minute, the maximum',
          }),
          blocks_per_second: rate.meta({ description: 'Indexed since the previous row; null after a reorg' }),
          transfers_per_second: rate,
        }),
      )
      .meta({ description: 'Oldest first; steps in which nothing was recorded are missing' }),
  })
  .meta({ id: 'History' });
export type HistoryAnswer = z.infer<typeof historyAnswer>;
