import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { chainStatusRow } from '../../projections/chain-status/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import { subjectTotals } from '../../projections/transfer-counts/queries.ts';
import { kindOfToken } from '../../projections/transfers/queries.ts';
import { traceAnswer, transferListAnswer } from '../../schemas/api/transfers.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';
import { endingWith } from '../http/clickhouse.ts';
import { notFound } from '../http/errors.ts';
import { address, boolean } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { allowedFilters, askedOf, transfersQuery } from './filters.ts';
import { listTransfers } from './list.ts';
import { presentTraced, presentTransfer } from './present.ts';
import { traceTransfers } from './trace.ts';

export interface TransferRouteDeps {
  readonly clickhouse: ClickHouse;
  readonly pool: Sql;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** A client's own patience is mostly half a minute. */
const TRACE_BUDGET_MS = 25_000;

export function transferRoutes({ clickhouse, pool, now }: TransferRouteDeps): Route[] {
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
  const track = defineRoute({
    method: 'GET',
    path: '/api/track-transfers/',
    summary: 'Trace transfers',
    description: [
      'Every transfer of the token that is reached from the account by way of counterparties, breadth first until none is',
      `new, by (block, event_index). Of one account the newest 10,000 are followed. The zero address is a counterparty like`,
      'any other; with `skip_zero=true` it is not followed. What takes too long is answered 503, never cut.',
    ].join(' '),
    tag: 'Transfers',
    auth: 'key',
    query: z.object({
      account: address('Where the trace begins'),
      token: address("The token's contract"),
      skip_zero: boolean('Do not follow the zero address').optional(),
    }),
    response: { 200: traceAnswer },
    errors: [404, 503],
    async handler({ input: { query }, served, request }) {
      const { account, token, skip_zero: skipZero = false } = query;
      const reading = { clickhouse: endingWith(request.signal, clickhouse), tables: served };
      const [[ofAccount = 0, ofToken = 0], kind, { l1_height: l1Height }] = await Promise.all([
        subjectTotals(reading.clickhouse, served, [
          { kind: 'account', felt: account },
          { kind: 'token', felt: token },
        ]),
        kindOfToken(reading.clickhouse, served, token),
        chainStatusRow(pool, served.schema('chain-status')),
      ]);
      if (ofAccount === 0) throw notFound('The account is not indexed.');
      if (ofToken === 0) throw notFound('The token is not indexed.');
      const rows = await traceTransfers(
        { ...reading, now },
        {
          account,
          token,
          transfers: ofToken,
          hasLegs: kind !== 'unknown',
          skipped: skipZero && account !== ZERO_FELT ? [ZERO_FELT] : [],
          budgetMs: TRACE_BUDGET_MS,
        },
      );
      return { status: 200, body: rows.map((row) => presentTraced(row, l1Height)) };
    },
  });
  return [list, track];
}
