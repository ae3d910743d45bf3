import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import { pageOfEvents } from '../../projections/block-events/queries.ts';
import { blocksAt } from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { MAX_HEIGHT, newestTransfer, transfersOfTransaction } from '../../projections/transfers/queries.ts';
import { eventListAnswer } from '../../schemas/api/events.ts';
import { eventName } from '../../schemas/decode/names.ts';
import type { Felt } from '../../schemas/felt.ts';
import { linkQuery } from '../http/as-of.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { REACHABLE_ROWS, envelope, resolvePage } from '../http/envelope.ts';
import { HttpError, invalidInput, invalidPage, notFound } from '../http/errors.ts';
import { hash, limit, page } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { height } from './filters.ts';
import { withEvents } from './indexed-events.ts';

export function eventsRoute({ clickhouseFor }: { readonly clickhouseFor: ClickHouseFor }): Route {
  return defineRoute({
    id: 'listEvents',
    method: 'GET',
    path: '/api/events/',
    summary: 'List the events of a block or a transaction',
    description: [
      'Returns all events, not only transfers, in block order, with keys and data as on the chain. Exactly one of `block` and',
      '`txhash` is required. A transaction is looked up by its transfers, so one without transfers returns 404. A block before',
      'Starknet 0.13.2, or whose header is unknown, returns 409 with code `events_not_kept`: only its transfers are indexed.',
    ].join(' '),
    tag: 'Transfers',
    auth: 'key',
    asOf: true,
    query: z.object({
      block: height('Height of the block').optional(),
      txhash: hash().optional(),
      page: page(),
      limit: limit(),
    }),
    response: { 200: eventListAnswer },
    errors: [404, 409, 503],
    async handler({ input: { query }, served, request, asOf }) {
      const { block, txhash } = query;
      const upTo = asOf?.height ?? MAX_HEIGHT;
      if ((block === undefined) === (txhash === undefined))
        throw invalidInput({ non_field_errors: ['Give either block or txhash.'] });
      if (query.page === 'invalid') throw invalidPage();
      const stores = { clickhouse: clickhouseFor(request), tables: served };
      const offset = query.page === 'last' ? null : Math.min((query.page - 1) * query.limit, REACHABLE_ROWS);
      const read = await withEvents(
        stores,
        async () =>
          txhash === undefined
            ? await indexedBlock(stores, block ?? 0, upTo)
            : await blockOfTransaction(stores, txhash, upTo),
        async (at) =>
          await pageOfEvents(stores.clickhouse, served, { height: at, txhash, offset, limit: query.limit }),
      );
      const listed = read?.events.page ?? null;
      if (read === null || listed === null)
        throw new HttpError(409, 'events_not_kept', 'The events of this block are not kept.');
      const { found } = read;
      const { total: count, events } = listed;
      const results = events.map((event) => ({
        ...event,
        name: eventName(event.keys),
        block: found.height,
        block_hash: found.hash,
      }));
      const asked = resolvePage(query.page, query.limit, count);
      return {
        status: 200,
        body: envelope(results, asked, { query: linkQuery(request.query, asOf), count }),
      };
    },
  });
}

interface Stores {
  readonly clickhouse: RowReader;
  readonly tables: ServedBuilds;
}

async function indexedBlock({ clickhouse, tables }: Stores, at: number, upTo: number) {
  const block = at > upTo ? undefined : (await blocksAt(clickhouse, tables, [at])).get(at);
  if (block === undefined) throw notFound('The block is not indexed.');
  return { height: at, hash: block.hash };
}

async function blockOfTransaction({ clickhouse, tables }: Stores, txhash: Felt, upTo: number) {
  const filters = { felts: { txhash }, lo: 0, hi: upTo };
  const { query, params } = newestTransfer(transfersOfTransaction(tables), filters);
  const [found] = await clickhouse.rows(query, params);
  if (found === undefined) throw notFound('No transfer of this transaction is indexed.');
  return { height: found.transfer.block, hash: found.blockHash };
}
