import { z } from 'zod';

import { accountFigures } from '../../projections/account-feed/queries.ts';
import { subjectTotals } from '../../projections/transfer-counts/queries.ts';
import { accountStatsAnswer } from '../../schemas/api/analytics.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { invalidInput } from '../http/errors.ts';
import { address } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { iso } from '../http/times.ts';

/** Transfers that are read for one answer: about a second. */
const MAX_TRANSFERS = 1_000_000;

export function accountStatsRoute({ clickhouseFor }: { readonly clickhouseFor: ClickHouseFor }): Route {
  return defineRoute({
    id: 'getAccountStats',
    method: 'GET',
    path: '/api/accounts/{address}/stats/',
    summary: 'Get figures of an account',
    description: [
      'Of all transfers of the account in the indexed blocks, fees among them. Neither the account itself nor the zero address is',
      'a counterparty. `fees` sums the transfers that are marked as fees which the account paid. They are counted for each request:',
      `400 for an account with more than ${MAX_TRANSFERS.toLocaleString('en')} transfers.`,
    ].join(' '),
    tag: 'Analytics',
    auth: 'key',
    asOf: 'All transfers up to the newest block are counted.',
    params: z.object({ address: address() }),
    reportsInvalidPath: true,
    response: { 200: accountStatsAnswer },
    async handler({ input: { params }, served, request }) {
      const clickhouse = clickhouseFor(request);
      const account = params.address;
      const [known = 0] = await subjectTotals(clickhouse, served, [{ kind: 'account', felt: account }]);
      if (known > MAX_TRANSFERS) {
        throw invalidInput({
          address: [`This account has ${known} transfers; figures are counted for up to ${MAX_TRANSFERS}.`],
        });
      }
      const { figures, fees } = await accountFigures(clickhouse, served, account);
      const { first, last, transfers, tokens, counterparties } = figures;
      const isSeen = transfers > 0;
      return {
        status: 200,
        body: {
          first_seen: isSeen ? iso(first * 1000) : null,
          last_seen: isSeen ? iso(last * 1000) : null,
          transfers,
          tokens,
          counterparties,
          fees: fees.map(({ token, amount }) => ({ token_address: token, amount })),
        },
      };
    },
  });
}
