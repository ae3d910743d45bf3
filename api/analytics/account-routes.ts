import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { accountFigures } from '../../projections/account-feed/queries.ts';
import type { AccountFee, AccountFigures } from '../../projections/account-feed/queries.ts';
import { subjectTotals } from '../../projections/transfer-counts/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { MAX_HEIGHT } from '../../projections/transfers/queries.ts';
import { accountStatsAnswer } from '../../schemas/api/analytics.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { invalidInput } from '../http/errors.ts';
import { address } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { figure } from '../http/stated-limits.ts';
import { isoSeconds } from '../http/times.ts';

/** Transfers that are read for one answer: about a second. */
const MAX_TRANSFERS = 1_000_000;

const NONE: { readonly figures: AccountFigures; readonly fees: readonly AccountFee[] } = {
  figures: { first: 0, last: 0, transfers: 0, tokens: 0, counterparties: 0 },
  fees: [],
};

export function accountStatsRoute({ clickhouseFor }: { readonly clickhouseFor: ClickHouseFor }): Route {
  return defineRoute({
    id: 'getAccountStats',
    method: 'GET',
    path: '/api/accounts/{address}/stats/',
    summary: 'Get figures of an account',
    description: [
      'Counts all transfers of the account in the indexed blocks, fees included. Neither the account itself nor the zero address is',
      'a counterparty. `fees` sums the fees that the account paid. The figures are computed for each request, so an account with',
      `more than ${MAX_TRANSFERS.toLocaleString('en')} transfers returns 400. The zero address is no account and has no`,
      'figures: its mints and burns are in `/api/tokens/{address}/stats/`.',
    ].join(' '),
    tag: 'Analytics',
    auth: 'key',
    asOf: true,
    params: z.object({ address: address() }),
    reportsInvalidPath: true,
    limits: [`Transfers of the account: ${figure(MAX_TRANSFERS)} (400)`],
    response: { 200: accountStatsAnswer },
    async handler({ input: { params }, served, request, asOf }) {
      const account = params.address;
      const { figures, fees } =
        account === ZERO_FELT
          ? NONE
          : await figuresUpTo(clickhouseFor(request), served, account, asOf?.height);
      const { first, last, transfers, tokens, counterparties } = figures;
      const isSeen = transfers > 0;
      return {
        status: 200,
        body: {
          first_seen: isSeen ? isoSeconds(first) : null,
          last_seen: isSeen ? isoSeconds(last) : null,
          transfers,
          tokens,
          counterparties,
          fees: fees.map(({ token, amount }) => ({ token_address: token, amount })),
        },
      };
    },
  });
}

/** @throws 400 where the account has too many transfers up to the height */
async function figuresUpTo(
  clickhouse: ClickHouse,
  served: ServedBuilds,
  account: Felt,
  upTo = MAX_HEIGHT,
): ReturnType<typeof accountFigures> {
  const [known = 0] = await subjectTotals(clickhouse, served, [{ kind: 'account', felt: account }], upTo);
  if (known > MAX_TRANSFERS) {
    throw invalidInput({
      address: [
        `This account has ${known} transfers${upTo < MAX_HEIGHT ? ` up to block ${upTo}` : ''}; figures are counted for up to ${MAX_TRANSFERS}.`,
      ],
    });
  }
  return await accountFigures(clickhouse, served, account, upTo);
}
