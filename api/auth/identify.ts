import type { Sql } from '../../infra/postgres/client.ts';
import { sessionByTokenHash } from '../../projections/accounts/queries.ts';
import { hashSecret } from './api-key.ts';
import { addressBlock } from '../http/client-address.ts';
import { permissionDenied, throttled, unauthenticated } from '../http/errors.ts';
import { SESSION_AS_KEY, acceptsSessionAsKey } from '../http/route.ts';
import { checkKey, countSessionCall } from './key-check.ts';
import type { KeyCheckDeps } from './key-check.ts';
import { rateLimitHeaders } from '../limits/allowance.ts';
import { MINUTE_MS } from '../limits/call-rates.ts';
import type { Limits } from '../limits/limits.ts';
import type { CallerNote } from '../http/request-state.ts';
import { readSignature } from '../sync/signature.ts';
import type { CallerKey, CallerUser, Identify, RequestInfo, Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';

export interface IdentifyDeps extends KeyCheckDeps {
  /** Read-only, for sessions. */
  readonly pool: Sql;
  readonly now: () => number;
  readonly limits: Limits;
}

const BEARER = /^Bearer(\s|$)/i;

export function createIdentify(
  deps: IdentifyDeps,
  route: Pick<Route, 'path' | 'auth' | 'method' | 'sessionCallsPerMinute' | 'addressCallsPerMinute'>,
  request: RequestInfo,
  served: () => Promise<ServedBuilds>,
  note: CallerNote,
): Identify {
  const authorization = (): string => request.header('authorization').trim();
  const keyHeader = (): string => request.header('api-key').trim();
  const hasKey = (): boolean => !['', SESSION_AS_KEY].includes(keyHeader());

  const key = async (): Promise<{ key: CallerKey }> => {
    if (keyHeader() !== SESSION_AS_KEY) return { key: await checkKey(deps, request, served, note) };
    // Not counted as a failure of the address, as no key was guessed: clients with only a session send it on every route.
    if (!acceptsSessionAsKey(route)) throw unauthenticated('key');
    const { user, tokenHash } = await session();
    await countSessionCall(deps, user.id, note);
    return { key: { id: null, userId: user.id, tokenHash } };
  };

  const findSession = async (): Promise<{ user: CallerUser; tokenHash: string; isAdmin: boolean }> => {
    const header = authorization();
    const match = /^Bearer[ ]+(\S+)$/i.exec(header);
    const token = match?.[1];
    if (!BEARER.test(header)) throw unauthenticated('session');
    if (token === undefined) throw unauthenticated('session', 'Invalid token header.');
    const tokenHash = hashSecret(token);
    const found = await sessionByTokenHash(deps.pool, (await served()).schema('accounts'), tokenHash);
    if (found === null || found.expires_at <= deps.now()) throw unauthenticated('session', 'Invalid token.');
    note.userId = found.user_id;
    await limitCalls(String(found.user_id), route.sessionCallsPerMinute);
    const user = { id: found.user_id, username: found.username, email: found.email };
    return { user, tokenHash, isAdmin: found.is_admin };
  };
  const session = async (): Promise<{ user: CallerUser; tokenHash: string }> => {
    const { user, tokenHash } = await findSession();
    return { user, tokenHash };
  };

  /** For calls without a key, on routes that declare a limit; keys have ceilings instead. */
  const limitCalls = async (caller: string, limit: number | undefined): Promise<void> => {
    if (limit === undefined) return;
    const taken = await deps.limits.callRates.take(`${caller} ${route.path}`, limit);
    const headers = rateLimitHeaders('minute', MINUTE_MS, taken);
    if (!taken.isAllowed) throw throttled(taken.resetMs / 1000, headers);
    note.settle = async () => headers;
  };

  return {
    async none() {
      await limitCalls(addressBlock(request.ip), route.addressCallsPerMinute);
      return {};
    },
    key,
    session,
    async admin() {
      const { user, isAdmin } = await findSession();
      if (!isAdmin) throw permissionDenied('You do not have permission to perform this action.');
      return { user };
    },
    async signature() {
      await limitCalls(addressBlock(request.ip), route.addressCallsPerMinute);
      return { signedCall: readSignature((name) => request.header(name), deps.now()) };
    },
    'key-or-session': async () =>
      hasKey() || authorization() === '' ? await key() : { user: (await session()).user },
  };
}
