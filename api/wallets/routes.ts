import { z } from 'zod';

import {
  countWallets,
  listWallets,
  walletById,
  walletCounts,
  walletRow,
  walletOf,
} from '../../projections/catalogue/queries.ts';
import {
  walletAnswer,
  walletListAnswer,
  walletLookupAnswer,
  walletStatsAnswer,
} from '../../schemas/api/wallets.ts';
import { walletStatus } from '../../schemas/catalogue.ts';
import { submitForCaller } from '../commands/submit-for-caller.ts';
import type { SubmitDeps } from '../commands/submit-for-caller.ts';
import { countedList } from '../http/counted-list.ts';
import { invalidInput, orNotFound } from '../http/errors.ts';
import { address, boolean, limit, networkFilter, page, text } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { activity, registeredWallet, walletParams } from './fields.ts';
import { presentWallet } from './present.ts';

export interface WalletRouteDeps extends SubmitDeps {
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Tolerated clock skew of clients. A time far ahead would never be replaced, as the value only increases. */
const MAX_CLOCK_SKEW_MS = 300_000;

const registered = z.object({ is_new: z.boolean(), wallet: walletRow });
const updated = z.object({ wallet: walletRow });
const answerList = countedList(countWallets, listWallets, presentWallet);

const common = { tag: 'Wallets', auth: 'key' } as const;
const path = '/api/dapps/vendor-wallets/';

/** Wallets that opted into discovery: any API key may register and update any of them. */
export function walletRoutes(deps: WalletRouteDeps): Route[] {
  return [listRoute(), registerRoute(deps), statsRoute(), oneRoute(), updateRoute(deps), lookupRoute()];
}

function listRoute(): Route {
  return defineRoute({
    id: 'listWallets',
    ...common,
    method: 'GET',
    path,
    summary: 'List registered wallets',
    description: 'In the order in which they were registered.',
    query: z.object({
      network: networkFilter().optional(),
      wallet_address: address().optional(),
      wallet_type: text({ max: 100 }).optional(),
      status: walletStatus.optional(),
      is_verified: boolean().optional(),
      is_active: boolean().optional(),
      page: page(),
      limit: limit(),
    }),
    response: { 200: walletListAnswer },
    async handler(context) {
      const { query } = context.input;
      return await answerList(context, {
        network: query.network,
        address: query.wallet_address,
        type: query.wallet_type,
        status: query.status,
        isVerified: query.is_verified,
        isActive: query.is_active,
      });
    },
  });
}

function registerRoute(deps: WalletRouteDeps): Route {
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'registerWallet',
    ...common,
    method: 'POST',
    path,
    summary: 'Register a wallet',
    description:
      'An address is registered once per network; registering it again returns 200 with the existing entry.',
    isIdempotent: true,
    body: registeredWallet,
    response: { 200: walletAnswer, 201: walletAnswer },
    location: `${path}{id}/`,
    async handler({ input: { body }, key, request }) {
      const result = await submit(
        { id: key.userId },
        { type: 'wallet.register', body },
        { request, input: body },
      );
      const { is_new: isNew, wallet } = registered.parse(result);
      return { status: isNew ? 201 : 200, body: presentWallet(wallet) };
    },
  });
}

function statsRoute(): Route {
  return defineRoute({
    id: 'getWalletStats',
    ...common,
    method: 'GET',
    path: `${path}stats/`,
    summary: 'Count registered wallets',
    description: 'Counts all wallets, active ones and verified ones, of one network or of all.',
    query: z.object({ network: networkFilter().optional() }),
    response: { 200: walletStatsAnswer },
    async handler({ input: { query }, served, pool }) {
      const { network = null } = query;
      const { total, active, verified } = await walletCounts(pool, served.schema('catalogue'), network);
      const body = { network, total_wallets: total, active_wallets: active, verified_wallets: verified };
      return { status: 200, body };
    },
  });
}

function oneRoute(): Route {
  return defineRoute({
    id: 'getWallet',
    ...common,
    method: 'GET',
    path: `${path}{id}/`,
    summary: 'Get a registered wallet',
    description: '`/api/dapps/vendor-wallets/` lists the ids.',
    params: walletParams,
    response: { 200: walletAnswer },
    async handler({ input: { params }, served, pool }) {
      const wallet = orNotFound(await walletById(pool, served.schema('catalogue'), params.id));
      return { status: 200, body: presentWallet(wallet) };
    },
  });
}

function updateRoute({ now, ...deps }: WalletRouteDeps): Route {
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'updateWalletActivity',
    ...common,
    method: 'POST',
    path: `${path}{id}/update_activity/`,
    summary: "Update a wallet's activity",
    description: 'Values only increase; lower ones are ignored.',
    isIdempotent: true,
    params: walletParams,
    body: activity,
    response: { 200: walletAnswer },
    async handler({ input, key, request }) {
      const { transaction_count: count, last_activity_at: lastAt } = input.body;
      if (lastAt.getTime() > now() + MAX_CLOCK_SKEW_MS) {
        throw invalidInput({ last_activity_at: ['Ensure this is not in the future.'] });
      }
      const body = {
        wallet_id: input.params.id,
        transaction_count: count,
        last_activity_at: lastAt.getTime(),
      };
      const result = await submit(
        { id: key.userId },
        { type: 'wallet.update-activity', body },
        { request, input },
      );
      return { status: 200, body: presentWallet(updated.parse(result).wallet) };
    },
  });
}

function lookupRoute(): Route {
  return defineRoute({
    id: 'findWallet',
    ...common,
    method: 'GET',
    path: '/api/dapps/vendor-wallet-lookup/',
    summary: 'Look up a wallet by address',
    description:
      'Without `network`, all networks are searched: an active entry is preferred, then the oldest.',
    query: z.object({ wallet_address: address(), network: networkFilter().optional() }),
    response: { 200: walletLookupAnswer },
    async handler({ input: { query }, served, pool }) {
      const { wallet_address: walletAddress, network = null } = query;
      const wallet = await walletOf(pool, served.schema('catalogue'), walletAddress, network);
      return {
        status: 200,
        body: {
          wallet_address: walletAddress,
          network,
          is_registered: wallet !== null,
          wallet: wallet === null ? null : presentWallet(wallet),
        },
      };
    },
  });
}
