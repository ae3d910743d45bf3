import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { createFinalHeights } from '../../projections/chain-status/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import { subjectTotals } from '../../projections/transfer-counts/queries.ts';
import { MAX_HEIGHT, hasUnknownTransfers } from '../../projections/transfers/queries.ts';
import { traceAnswer, transferListAnswer } from '../../schemas/api/transfers.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { linkQuery } from '../http/as-of.ts';
import { readClasses } from '../http/clickhouse.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { notFound } from '../http/errors.ts';
import { address, boolean } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { createStateCache } from '../http/state-cache.ts';
import { figure, readLimit } from '../http/stated-limits.ts';
import { createEventTrees } from './event-trees.ts';
import { eventsRoute } from './events.ts';
import { allowedFilters, searchOf, transfersQuery } from './filters.ts';
import { listTransfers } from './list.ts';
import { presentTraced, presentTransfer } from './present.ts';
import { proofRoute } from './proof.ts';
import { traceTransfers, MAX_TRANSFERS, MAX_TRANSFERS_PER_ACCOUNT } from './trace.ts';

export interface TransferRouteDeps {
  readonly clickhouseFor: ClickHouseFor;
  readonly pool: Sql;
  /** The highest height that can be queried. */
  readonly indexedHeight: () => number | null;
  /** Unix milliseconds. */
  readonly now: () => number;
  /** 25 s by default. */
  readonly traceBudgetMs?: number;
}

const common = { method: 'GET', tag: 'Transfers', auth: 'key', asOf: true } as const;

export function transferRoutes(deps: TransferRouteDeps): Route[] {
  const finalHeights = createFinalHeights(deps.pool);
  const trees = createEventTrees();
  return [
    listRoute(deps, finalHeights),
    proofRoute({ ...deps, finalHeights, trees }),
    eventsRoute(deps),
    traceRoute(deps, finalHeights),
  ];
}

type FinalHeights = ReturnType<typeof createFinalHeights>;

function listRoute(
  { clickhouseFor, indexedHeight, now }: TransferRouteDeps,
  finalHeights: FinalHeights,
): Route {
  const totals = createStateCache<string, number>(now);
  const tokens = createStateCache<Felt, TokenRow>(now);
  return defineRoute({
    id: 'listTransfers',
    ...common,
    path: '/api/transfers/',
    summary: 'List transfers',
    description: [
      'Newest first, sorted by block, position of the event and item of a batch. Filters combine with AND. At least one of',
      `${allowedFilters.map((name) => `\`${name}\``).join(', ')} is required; a request without one returns 400, and`,
      '`allowed_filters` lists them. Height and time bounds narrow the list but do not count as filters. `page` reaches row',
      '1,000,000; `cursor` has no limit. `count` is exact for a single token, account or block, otherwise up to 100,000; above',
      'that it is an estimate, and `count_is_estimate` is true.',
    ].join(' '),
    isCacheable: true,
    query: transfersQuery,
    response: { 200: transferListAnswer },
    async handler({ input: { query }, served, request, asOf, pool }) {
      const search = searchOf(query, asOf);
      const clickhouse = clickhouseFor(request);
      // Like the answer, no total covers less than X-Indexed-Block says.
      const state = served.chainState === null ? null : `${served.chainState} ${indexedHeight()}`;
      // As of a block it is unknown what was accepted on L1 then.
      const l1Height = asOf === null ? await finalHeights(served) : null;
      const page = await listTransfers(
        {
          clickhouse,
          tables: served,
          async total(subject) {
            const key = `${subject.kind} ${subject.felt}`;
            const found = await totals.values(state, [key], async () => {
              const [total = 0] = await subjectTotals(clickhouse, served, [subject]);
              return new Map([[key, total]]);
            });
            return found.get(key) ?? 0;
          },
        },
        {
          search,
          page: query.page,
          limit: query.limit,
          cursor: query.cursor,
          query: linkQuery(request.query, asOf),
        },
      );
      const described = await tokens.values(
        served.state,
        page.results.map(({ token }) => token),
        (unknown) => tokensByAddress(pool, served.schema('tokens'), unknown),
      );
      const results = page.results.map((row) => presentTransfer(row, described.get(row.token), l1Height));
      // An empty page is not cached, so that the first matching transfer shows at once.
      return { status: 200, body: { ...page, results }, noStore: results.length === 0 };
    },
  });
}

function traceRoute(
  { clickhouseFor, now, traceBudgetMs = readClasses.trace.timeoutMs }: TransferRouteDeps,
  finalHeights: FinalHeights,
): Route {
  return defineRoute({
    id: 'traceTransfers',
    ...common,
    path: '/api/track-transfers/',
    summary: 'Trace transfers',
    description: [
      'Follows the transfers of the token from the account to its counterparties and on, breadth first, until no new account',
      'is found, and returns them sorted by block and `event_index`. Follows the newest 10,000 transfers of each account. The',
      'zero address is followed like any other, unless `skip_zero=true`. A trace that takes too long returns 503, one',
      'that holds too many transfers 400; it is never truncated.',
    ].join(' '),
    query: z.object({
      account: address('Account to start from'),
      token: address('Contract of the token'),
      skip_zero: boolean('Do not follow the zero address').optional(),
    }),
    limits: [
      readLimit('trace'),
      `Transfers of an account that are followed: the newest ${figure(MAX_TRANSFERS_PER_ACCOUNT)}`,
      `Transfers of an answer: ${figure(MAX_TRANSFERS)} (400)`,
    ],
    response: { 200: traceAnswer },
    errors: [404, 503],
    async handler({ input: { query }, served, request, asOf }) {
      const { account, token, skip_zero: skipZero = false } = query;
      const upTo = asOf?.height ?? MAX_HEIGHT;
      const walkReads = clickhouseFor(request, { readClass: 'trace', timeoutMs: traceBudgetMs });
      const reads = clickhouseFor(request);
      const [[ofAccount = 0, ofToken = 0], hasUnknown, l1Height] = await Promise.all([
        subjectTotals(
          reads,
          served,
          [
            { kind: 'account', felt: account },
            { kind: 'token', felt: token },
          ],
          upTo,
        ),
        hasUnknownTransfers(reads, served, token),
        asOf === null ? finalHeights(served) : null,
      ]);
      if (ofAccount === 0) throw notFound('The account is not indexed.');
      if (ofToken === 0) throw notFound('The token is not indexed.');
      const found = await traceTransfers(
        { clickhouse: walkReads, tables: served, now },
        {
          account,
          token,
          upTo,
          transfers: ofToken,
          hasLegs: !hasUnknown,
          skipped: skipZero && account !== ZERO_FELT ? [ZERO_FELT] : [],
          budgetMs: traceBudgetMs,
        },
      );
      return {
        status: 200,
        body: found.inOrder().map((row) => presentTraced(row, l1Height)),
      };
    },
  });
}
