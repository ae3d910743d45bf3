import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { chainStatusRow } from '../../projections/chain-status/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import { transferListAnswer } from '../../schemas/api/transfers.ts';
import { endingWith } from '../clickhouse.ts';
import { defineRoute } from '../route.ts';
import type { Route } from '../route.ts';
import { allowedFilters, askedOf, transfersQuery } from './filters.ts';
import { listTransfers } from './list.ts';
import { presentTransfer } from './present.ts';

export interface TransferRouteDeps {
  readonly clickhouse: ClickHouse;
  readonly pool: Sql;
}

export function transferRoutes({ clickhouse, pool }: TransferRouteDeps): Route[] {
  const list = defineRoute({
    method: 'GET',
    path: '/api/transfers/',
    summary: 'List transfers',
    description: [
      'Newest first by (block, position of the event, item of a batch). Filters combine with AND; at least one of',
      `${allowedFilters.map((name) => `\`${name}\``).join(', ')} is required, and a 400 without one names them in`,
      '`allowed_filters`. Heights and times narrow, but are no filters. `page` reaches row 1,000,000; `cursor` goes to',
      'the end. `count` is exact for one token or one account, and up to 100,000 for anything else; beyond that it is an',
      'estimate and `count_is_estimate` is true.',
    ].join(' '),
    tag: 'Transfers',
    auth: 'key',
    isReusable: true,
    query: transfersQuery,
    response: { 200: transferListAnswer },
    async handler({ input: { query }, served, request }) {
      const asked = askedOf(query);
      const status = chainStatusRow(pool, served.schema('chain-status'));
      // Awaited below, after the pages are read; a failure before that must not end the process.
      status.catch(() => undefined);
      const found = await listTransfers(
        { clickhouse: endingWith(request.signal, clickhouse), tables: served },
        { asked, page: query.page, limit: query.limit, cursor: query.cursor, query: request.query },
      );
      const tokens = await tokensByAddress(
        pool,
        served.schema('tokens'),
        found.results.map(({ token }) => token),
      );
      const { l1_height: l1Height } = await status;
      const results = found.results.map((row) => presentTransfer(row, tokens.get(row.token), l1Height));
      // What is asked for before it is indexed shows as soon as it is.
      return { status: 200, body: { ...found, results }, isPassing: results.length === 0 };
    },
  });
  return [list];
}
