import { chainStatusRow } from '../../../projections/chain-status/queries.ts';
import { chunkTotals, indexedRanges } from '../../../projections/indexed-blocks/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import type { ChunksAnswer } from '../../../schemas/api/admin/chunks.ts';
import { chunkMap, headHeight } from './status.ts';
import type { OperatorStores } from './status.ts';

/** The chunks that `tds status` lists, and the heights that can be queried. */
export async function readChunks({
  pool,
  clickhouse,
}: Pick<OperatorStores, 'pool' | 'clickhouse'>): Promise<ChunksAnswer> {
  const served = await servedBuilds(pool);
  const [chain, chunks, totals, indexed] = await Promise.all([
    chainStatusRow(pool, served.schema('chain-status')),
    chunkMap(pool),
    chunkTotals(clickhouse, served),
    indexedRanges(clickhouse, served),
  ]);
  return {
    head_height: headHeight(chain, chunks),
    l1_height: chain.l1_height,
    indexed,
    chunks: chunks.map(({ name, range_start: start, range_end: end, ...row }) => {
      const own = totals.find(({ chunk }) => chunk === name);
      return {
        name,
        range: [start, end],
        cursor: row.cursor,
        final_height: row.final_height < start ? null : row.final_height,
        status: row.status,
        writer: row.writer,
        updated_at: row.updated_at.toISOString(),
        blocks_indexed: own?.blocks ?? 0,
        transfers_indexed: own?.transfers ?? 0,
        blocks_verified: own?.verified ?? 0,
      };
    }),
  };
}
