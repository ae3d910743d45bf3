import { z } from 'zod';

import { mapYielding } from '../../infra/yielding.ts';
import {
  accountBalancesAnswer,
  balanceAnswer,
  balanceHistoryAnswer,
  balancesAnswer,
} from '../../schemas/api/balances.ts';
import { pricesAtTimes } from '../../projections/prices/queries.ts';
import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { AsOf } from '../http/as-of.ts';
import { invalidInput, notFound, unavailable } from '../http/errors.ts';
import type { HttpError } from '../http/errors.ts';
import { integerField } from '../http/fields.ts';
import { address, boolean, format, integer, timestamp } from '../http/params.ts';
import { pricesFor } from '../prices/current.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { figure, readLimit } from '../http/stated-limits.ts';
import { blockSecond, isoSeconds } from '../http/times.ts';
import { freshAccountBalances, MAX_READS, TOKENS_LIMIT } from './account.ts';
import { factsOf, freshBalances } from './current.ts';
import type { FreshBalance, MaxAge } from './current.ts';
import { HISTORY_ROWS, balanceHistory } from './history.ts';
import { hasDeltas, isReadable } from '../../schemas/balance.ts';
import { presentAccountBalance, presentBalance, presentHistoryRow } from './present.ts';
import type { BalanceDepsFor } from './reading.ts';

export interface BalanceRouteDeps {
  readonly reading: BalanceDepsFor;
}

const DEFAULT_MAX_AGE_SECONDS = 300;
const MAX_PAIRS = 20;
const MAX_SECONDS = 4_294_967_295;

const maxAge = integer({
  min: 0,
  max: MAX_SECONDS,
  description: 'Maximum age of the balance read from the chain, in seconds',
});
const REFRESH =
  'Read the balance from the chain, whatever its age. Callers within 1 s of a read at the newest block share that read.';
const forceRefresh = boolean(REFRESH);

const common = { tag: 'Balances', auth: 'key-or-session', asOf: true } as const;

export function balanceRoutes(deps: BalanceRouteDeps): Route[] {
  return [oneRoute(deps), manyRoute(deps), ofAccountRoute(deps), historyRoute(deps)];
}

function oneRoute({ reading }: BalanceRouteDeps): Route {
  return defineRoute({
    id: 'getBalance',
    ...common,
    method: 'GET',
    path: '/api/balance/',
    summary: 'Balance of one token of an account',
    description: [
      'Returns the last balance read from the chain plus the transfers indexed since. A balance that was read longer than',
      '`max_age` ago is read again; if the node does not answer within 8 s, the last known balance is returned with `stale`.',
    ].join(' '),
    sessionCallsPerMinute: 30,
    query: z.object({
      account_address: address(),
      token_address: address(),
      force_refresh: forceRefresh.optional(),
      max_age: maxAge.optional(),
    }),
    response: { 200: balanceAnswer },
    async handler({ input: { query }, served, request, asOf, pool }) {
      refuseRefresh(query, asOf);
      const deps = reading(served, { request, asOf, pool });
      const pair = { account: query.account_address, token: query.token_address };
      const [[found], priced] = await Promise.all([
        freshBalances(deps, [pair], maxAgeOf(query.force_refresh, query.max_age)),
        pricesFor(deps, [pair.token]),
      ]);
      if (!isKnown(found)) throw unknownAt(asOf, found);
      return {
        status: 200,
        body: { success: true as const, data: presentBalance(found, priced.get(pair.token)) },
      };
    },
  });
}

function manyRoute({ reading }: BalanceRouteDeps): Route {
  return defineRoute({
    id: 'getBalances',
    ...common,
    method: 'POST',
    path: '/api/balances/',
    summary: 'Balances of up to 20 pairs',
    description:
      '`data` lists the known balances in request order; `errors` lists the pairs that failed, or is null if all succeeded.',
    sessionCallsPerMinute: 10,
    body: z.object({
      balances: z
        .array(z.object({ account_address: z.string(), token_address: z.string() }))
        .min(1)
        .max(MAX_PAIRS),
      force_refresh: z.boolean().meta({ description: REFRESH }).optional(),
      max_age: integerField({ min: 0, max: MAX_SECONDS }).optional(),
    }),
    limits: [`Pairs: ${MAX_PAIRS}`],
    response: { 200: balancesAnswer },
    async handler({ input: { body }, served, request, asOf, pool }) {
      refuseRefresh(body, asOf);
      const deps = reading(served, { request, asOf, pool });
      const requested = body.balances.map((sent) => ({
        sent,
        account: parseFelt(sent.account_address),
        token: parseFelt(sent.token_address),
      }));
      const pairs = requested.flatMap(({ account, token }) =>
        account === null || token === null ? [] : [{ account, token }],
      );
      const tokens = [...new Set(pairs.map(({ token }) => token))];
      const [found, priced] = await Promise.all([
        freshBalances(deps, pairs, maxAgeOf(body.force_refresh, body.max_age)),
        pricesFor(deps, tokens),
      ]);
      const rest = found.values();
      const data = [];
      const errors = [];
      for (const { sent, account, token } of requested) {
        if (account === null || token === null) {
          errors.push({ ...sent, error: malformed(account) });
          continue;
        }
        const { value } = rest.next();
        if (isKnown(value)) data.push(presentBalance(value, priced.get(token)));
        else errors.push({ ...sent, error: unknownAt(asOf, value).message });
      }
      return {
        status: 200,
        body: { success: true as const, data, errors: errors.length === 0 ? null : errors },
      };
    },
  });
}

function ofAccountRoute({ reading }: BalanceRouteDeps): Route {
  return defineRoute({
    id: 'getAccountBalances',
    ...common,
    method: 'GET',
    path: '/api/account-balances/',
    summary: 'Balances of all tokens of an account',
    description: [
      'Lists every token with an indexed transfer of the account, including zero balances and NFT contracts; the list is empty',
      'for an account that is not indexed. Balances that were read longer than `max_age` ago are read from the chain again:',
      'after the response, or before it with `force_refresh`. A call reads at most 200 balances, least recently read first.',
      'With `force_refresh`, the others are marked `stale`; repeat the call to read the next 200.',
    ].join(' '),
    sessionCallsPerMinute: 10,
    query: z.object({
      account_address: address(),
      force_refresh: forceRefresh.optional(),
      max_age: maxAge.optional(),
    }),
    limits: [readLimit('account'), TOKENS_LIMIT, `Balances that a call reads from the chain: ${MAX_READS}`],
    response: { 200: accountBalancesAnswer },
    async handler({ input: { query }, served, request, asOf, pool }) {
      refuseRefresh(query, asOf);
      const deps = reading(served, { request, asOf, pool }, 'account');
      const { balances, isWhole } = await freshAccountBalances(
        deps,
        query.account_address,
        maxAgeOf(query.force_refresh, query.max_age),
      );
      const known = balances.filter(isKnown);
      const priced = await pricesFor(
        deps,
        known.map(({ pair }) => pair.token),
      );
      const data = await mapYielding(known, (balance) =>
        presentAccountBalance(balance, priced.get(balance.pair.token)),
      );
      const isComplete = isWhole && known.length === balances.length;
      return {
        status: 200,
        body: {
          success: true as const,
          count: data.length,
          data,
          ...(isComplete ? {} : { complete: false as const }),
        },
      };
    },
  });
}

function historyRoute({ reading }: BalanceRouteDeps): Route {
  return defineRoute({
    id: 'getBalanceHistory',
    method: 'GET',
    path: '/api/balance-history/',
    summary: 'Balance of a pair after each of its transfers',
    description: [
      'Returns one row per transfer of the pair, sorted by block, position of the event and item of a batch, oldest first,',
      'with the balance right after it, computed backward from a',
      'balance read from the chain. If the balance is unknown at the start of the window, the rows begin where it is known,',
      'and `complete_from` is that time. A window with too many transfers is rejected: ask for shorter ones.',
    ].join(' '),
    tag: 'Transfers',
    auth: 'key',
    query: z.object({
      account_address: address(),
      token_address: address(),
      start_time: timestamp('ISO 8601, inclusive, UTC by default'),
      end_time: timestamp('ISO 8601, inclusive; now when absent').optional(),
      format: format(),
    }),
    hasCsv: true,
    asOf: true,
    limits: [readLimit('account'), `Transfers of the pair in the window: ${figure(HISTORY_ROWS)} (400)`],
    response: { 200: balanceHistoryAnswer },
    async handler({ input: { query }, served, request, asOf, pool }) {
      const deps = reading(served, { request, asOf, pool }, 'account');
      const { start_time: start, end_time: end = new Date(deps.now()) } = query;
      if (start > end) throw invalidInput({ start_time: ['Must not be later than end_time.'] });
      const pair = { account: query.account_address, token: query.token_address };
      const [{ token, rows, completeFrom }, newest] = await Promise.all([
        balanceHistory(deps, pair, {
          start: blockSecond(Math.ceil(start.getTime() / 1000)),
          end: blockSecond(Math.floor(end.getTime() / 1000)),
        }),
        pricesFor(deps, [pair.token]),
      ]);
      const oldestFirst = rows.toReversed();
      // Most tokens never had a price, so they need no look-up of past prices.
      const priced = await pricesAtTimes(
        deps.clickhouse,
        served,
        [...newest.keys()],
        oldestFirst.map(({ timestamp: time }) => time * 1000),
      );
      const data = await mapYielding(oldestFirst, (row, i) =>
        presentHistoryRow(row, token, priced[i]?.get(pair.token) ?? null),
      );
      return {
        status: 200,
        body: {
          success: true as const,
          data,
          count: data.length,
          account_address: pair.account,
          token_address: pair.token,
          start_time: start.toISOString(),
          end_time: end.toISOString(),
          ...(completeFrom === undefined
            ? {}
            : { complete_from: completeFrom === null ? null : isoSeconds(completeFrom) }),
        },
      };
    },
  });
}

function isKnown(found: FreshBalance | undefined): found is FreshBalance & { readonly balance: bigint } {
  return found !== undefined && found.balance !== null;
}

function malformed(account: Felt | null): string {
  const field = account === null ? 'account_address' : 'token_address';
  return `${field}: Enter a valid address (0x and up to 64 hex digits).`;
}

/** The balance as of a block comes from the index alone. */
const unknownAt = (asOf: AsOf | null, found: FreshBalance | undefined): HttpError =>
  asOf === null
    ? unknownBalance(found)
    : notFound(`The balance as of block ${asOf.height} cannot be computed from the indexed transfers.`);

function refuseRefresh(query: { readonly force_refresh?: boolean | undefined }, asOf: AsOf | null): void {
  if (asOf === null || query.force_refresh !== true) return;
  throw invalidInput({
    force_refresh: ['Cannot be combined with as_of_block: the chain is read at its newest block.'],
  });
}

/** Why a balance is unknown: the contract has none, none can exist, or neither chain nor index determines it. */
function unknownBalance(found: FreshBalance | undefined): HttpError {
  const refusal = found?.reads.refusal ?? null;
  if (refusal !== null) {
    return invalidInput({
      token_address: [`The contract returned no balance: ${refusal.reason}`.slice(0, 500)],
    });
  }
  if (found !== undefined) {
    const facts = factsOf(found.pair, found.token);
    if (!isReadable(facts) && !hasDeltas(facts)) {
      return invalidInput({ account_address: ['The zero address has no balance of this token.'] });
    }
  }
  return unavailable('balance_unknown', 'The balance is not known yet, and the chain could not be read.', 5);
}

function maxAgeOf(isForced: boolean | undefined, seconds = DEFAULT_MAX_AGE_SECONDS): MaxAge {
  return isForced === true ? null : seconds * 1000;
}
