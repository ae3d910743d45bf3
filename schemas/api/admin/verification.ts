import { z } from 'zod';

import { isoTimestamp } from '../common.ts';

const count = z.int().min(0);

const verifyRun = z
  .object({
    started_at: isoTimestamp,
    finished_at: isoTimestamp,
    outcome: z.enum(['no differences', 'differences', 'inconclusive']),
    error: z.string().nullable().meta({ description: 'Why it is inconclusive' }),
    differences: count.meta({ description: 'That remain after the repair, if one was asked for' }),
    first_differences: z.array(z.string()),
    found: count.meta({ description: 'Before the repair' }),
    repaired_rows: count,
    from: count.nullable().meta({ description: 'Lowest height; null: nothing is indexed' }),
    to: count.nullable(),
    messages: count,
  })
  .meta({ id: 'VerifyRun' });

export const verificationAnswer = z
  .object({
    last_verify: verifyRun.nullable(),
    runs: z.array(verifyRun).meta({ description: 'The last ten, newest first' }),
    sampling: z
      .object({
        since: isoTimestamp,
        blocks: count.meta({ description: 'Blocks that were compared' }),
        differences: count,
        last_height: count,
        last_at: isoTimestamp,
        last_difference: z.object({ height: count, at: isoTimestamp }).nullable(),
      })
      .nullable()
      .meta({ description: 'The service compares random blocks all the time; null before the first' }),
    inconsistent_blocks: z.array(z.object({ height: count, detail: z.string(), since: isoTimestamp })).meta({
      description: 'Sampled blocks that are still wrong; the detail has the command that repairs each',
    }),
  })
  .meta({ id: 'AdminVerification' });
export type VerificationAnswer = z.infer<typeof verificationAnswer>;
