import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { createFinalHeights } from '../../projections/chain-status/queries.ts';
import { countedBlock } from '../../projections/indexed-blocks/queries.ts';
import { feesOfBlock } from '../../projections/transfers/queries.ts';
import { blockAnswer } from '../../schemas/api/blocks.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { notFound } from '../http/errors.ts';
import { blockId } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { isoSeconds } from '../http/times.ts';
import { statusOf } from '../transfers/present.ts';

export interface BlockRouteDeps {
  readonly clickhouseFor: ClickHouseFor;
  readonly pool: Sql;
}

export function blockRoute({ clickhouseFor, pool }: BlockRouteDeps): Route {
  const finalHeights = createFinalHeights(pool);
  return defineRoute({
    id: 'getBlock',
    method: 'GET',
    path: '/api/blocks/{block}/',
    summary: 'Get a block by height or hash',
    description:
      'Returns an indexed block with its counts and fees. The hash of a reverted block returns 404. A lookup by hash is slower than one by height.',
    tag: 'Indexer',
    auth: 'key',
    asOf: true,
    params: z.object({ block: blockId() }),
    response: { 200: blockAnswer },
    async handler({ input: { params }, served, request, asOf }) {
      const clickhouse = clickhouseFor(request);
      // Read first: a block at or below it is not reverted afterwards.
      const l1Height = asOf === null ? await finalHeights(served) : null;
      const block = await countedBlock(clickhouse, served, params.block);
      if (block === null || block.height > (asOf?.height ?? block.height)) throw notFound();
      const { timestamp, ...facts } = block;
      const fees = await feesOfBlock(clickhouse, served, block.height);
      return {
        status: 200,
        body: {
          ...facts,
          timestamp: isoSeconds(timestamp),
          status: statusOf(block.height, l1Height),
          fees: fees.map(({ token, amount }) => ({ token_address: token, amount })),
        },
      };
    },
  });
}
