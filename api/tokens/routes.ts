import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { latestPricesOf } from '../../projections/latest-prices/queries.ts';
import { countTokens, listTokens, tokensByAddress } from '../../projections/tokens/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import { tokenAnswer, tokenListAnswer } from '../../schemas/api/tokens.ts';
import { parseFelt } from '../../schemas/felt.ts';
import { tokenStandards } from '../../schemas/messages/common.ts';
import { BY_TIME } from '../http/as-of.ts';
import { envelope, resolvePage } from '../http/envelope.ts';
import { orNotFound } from '../http/errors.ts';
import { address, boolean, limit, page, text } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { presentToken } from './present.ts';

const common = { method: 'GET', tag: 'Tokens', auth: 'key', asOf: BY_TIME } as const;

export function tokenRoutes(): Route[] {
  return [listRoute(), oneRoute()];
}

function listRoute(): Route {
  return defineRoute({
    id: 'listTokens',
    ...common,
    path: '/api/tokens/',
    summary: 'List tokens',
    description: 'Curated tokens first. Leaves out hidden tokens unless `hidden` is given.',
    query: z.object({
      common: boolean('In the curated set').optional(),
      verified: boolean('Manually reviewed').optional(),
      public: boolean('Publicly listed').optional(),
      hidden: boolean('`true`: only hidden tokens').optional(),
      type: z.enum(tokenStandards).optional().meta({ description: 'Standard of the contract' }),
      search: text({
        max: 200,
        description: 'Part of a name or symbol, case-insensitive, or an address',
      }).optional(),
      address: address().optional(),
      page: page(),
      limit: limit(),
    }),
    response: { 200: tokenListAnswer },
    async handler({ input: { query }, served, request, pool }) {
      const schema = served.schema('tokens');
      const { common, verified, hidden = false, type, search, address: token } = query;
      const asAddress = search === undefined ? null : parseFelt(search.trim());
      const filters = {
        common,
        verified,
        public: query.public,
        hidden,
        standard: type,
        address: token,
        text: search,
        textAsAddress: asAddress ?? undefined,
      };
      const count = await countTokens(pool, schema, filters);
      const found = resolvePage(query.page, query.limit, count);
      const rows = await listTokens(pool, schema, filters, found);
      const prices = await pricesOf(pool, served, rows);
      const results = rows.map((row) => presentToken(row, prices.get(row.token)));
      return { status: 200, body: envelope(results, found, { query: request.query, count }) };
    },
  });
}

function oneRoute(): Route {
  return defineRoute({
    id: 'getToken',
    ...common,
    path: '/api/tokens/{address}/',
    summary: 'Get a token',
    params: z.object({ address: address() }),
    reportsInvalidPath: true,
    response: { 200: tokenAnswer },
    async handler({ input: { params }, served, pool }) {
      const known = await tokensByAddress(pool, served.schema('tokens'), [params.address]);
      const token = orNotFound(known.get(params.address));
      const prices = await pricesOf(pool, served, [token]);
      return { status: 200, body: presentToken(token, prices.get(token.token)) };
    },
  });
}

async function pricesOf(pool: Sql, served: ServedBuilds, rows: readonly TokenRow[]) {
  return await latestPricesOf(
    pool,
    served.schema('latest-prices'),
    rows.map(({ token }) => token),
  );
}
