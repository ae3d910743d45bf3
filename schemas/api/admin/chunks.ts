import { z } from 'zod';

import { isoTimestamp } from '../common.ts';

const height = z.int().min(0);

export const chunksAnswer = z
  .object({
    head_height: height.nullable(),
    l1_height: height.nullable(),
    indexed: z
      .array(
        z.object({
          first: height,
          last: height,
          blocks: z.int().min(0),
          is_whole: z.boolean().meta({ description: 'False: some of the heights are not indexed' }),
        }),
      )
      .meta({
        description:
          'Heights that can be queried, lowest first, by ranges of 1,024: consecutive complete ranges are merged, incomplete ones listed one by one',
      }),
    chunks: z
      .array(
        z.object({
          name: z.string(),
          range: z.tuple([height, height.nullable()]).meta({
            description: 'First and last height, inclusive; the last is null for `live`',
          }),
          cursor: height.meta({ description: 'The next height to be written to the log' }),
          final_height: height.nullable().meta({ description: 'Highest height that is accepted on L1' }),
          status: z.enum(['open', 'finished']),
          writer: z.string().nullable().meta({ description: 'The process that holds its lease' }),
          updated_at: isoTimestamp,
          blocks_indexed: z.int().min(0),
          transfers_indexed: z.int().min(0),
          blocks_verified: z.int().min(0).meta({
            description: 'Indexed blocks whose events match the `event_commitment` of their header',
          }),
        }),
      )
      .meta({ description: 'Lowest first' }),
  })
  .meta({ id: 'ChunkMap' });
export type ChunksAnswer = z.infer<typeof chunksAnswer>;
