import { z } from 'zod';

const chunkAnswer = z
  .object({
    name: z.string(),
    range: z.tuple([z.int().min(0), z.int().min(0).nullable()]).meta({
      description: 'First and last height, inclusive; the last is null for `live`',
    }),
    latest_block: z.int().min(0).meta({
      description:
        'Highest block with an indexed transfer of the chunk; the start of its range before the first',
    }),
    transfers: z.int().min(0),
    percent: z.number().min(0).max(1).nullable().meta({
      description:
        '0 to 1: (latest_block - start) / (end - start); null for `live` and for a range of one height',
    }),
  })
  .meta({ id: 'IndexerChunk' });

export const progressAnswer = z
  .object({
    network: z.string().meta({
      description: 'mainnet, sepolia, or the chain id as text; empty until the node was contacted',
    }),
    chunks: z.array(chunkAnswer),
    totals: z.object({
      transfers: z.int().min(0).meta({ description: 'Sum over all chunks' }),
      latest_block_overall: z.int().min(0).meta({ description: 'Highest `latest_block`; 0 without a chunk' }),
    }),
    verified_blocks: z.int().min(0).meta({
      description: 'Indexed blocks whose events were compared with the commitment in their header, and match',
    }),
  })
  .meta({ id: 'IndexerProgress' });
export type ProgressAnswer = z.infer<typeof progressAnswer>;
