import { chainStatusRow, chunkRows } from '../../projections/chain-status/queries.ts';
import { chunkTotals } from '../../projections/indexed-blocks/queries.ts';
import { progressAnswer } from '../../schemas/api/progress.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { presentProgress } from './progress.ts';

export interface IndexerRouteDeps {
  readonly clickhouseFor: ClickHouseFor;
}

export function indexerRoutes({ clickhouseFor }: IndexerRouteDeps): Route[] {
  const progress = defineRoute({
    id: 'getProgress',
    method: 'GET',
    path: '/api/indexer/progress/',
    summary: 'Get the progress of the index',
    description:
      'A chunk is a range of blocks with its own cursor. Totals count only what can be queried. `latest_block` does not advance across blocks without transfers.',
    tag: 'Indexer',
    auth: 'key',
    asOf: 'This route returns the current progress.',
    response: { 200: progressAnswer },
    async handler({ served, request, pool }) {
      const schema = served.schema('chain-status');
      const [status, chunks, totals] = await Promise.all([
        chainStatusRow(pool, schema),
        chunkRows(pool, schema),
        chunkTotals(clickhouseFor(request), served),
      ]);
      return { status: 200, body: presentProgress(status.chain_id, chunks, totals) };
    },
  });
  return [progress];
}
