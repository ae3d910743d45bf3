import type { Sql } from '../infra/postgres/client.ts';
import { keyByHash, sessionByTokenHash } from '../projections/accounts/queries.ts';
import { hashSecret, isWellFormedApiKey } from './api-key.ts';
import { permissionDenied, unauthenticated } from './errors.ts';
import { findViolation } from './restrictions.ts';
import type { CallerKey, CallerUser, Identify, RequestInfo, ServedBuilds } from './route.ts';

/** Counts what keys do: the ceiling of a key, and the block of an address that fails too often. Each throws 403. */
export interface KeyLimits {
  /** Before anything is known of the key. */
  admitAddress(ip: string): Promise<void>;
  /** A check failed: no such key, or a key used from where it may not be. */
  recordFailure(ip: string): Promise<void>;
  /** Reserves one call of the key. `settle` is called when the answer's status is known. */
  reserve(key: CallerKey, ip: string): Promise<{ settle(status: number): void }>;
}

export interface IdentifyDeps {
  /** May only SELECT. Keys are looked up at every call: no cache could outlive a deletion. */
  readonly pool: Sql;
  readonly now: () => number;
  readonly keyLimits?: KeyLimits | undefined;
}

/** What became known of the caller, for the access log; and what is to be told how the call ended. */
export interface CallerNote {
  keyId?: number;
  userId?: number;
  settle?: (status: number) => void;
}

export function createIdentify(
  { pool, now, keyLimits }: IdentifyDeps,
  request: RequestInfo,
  served: () => Promise<ServedBuilds>,
  note: CallerNote,
): Identify {
  const fail = async (error: Error): Promise<never> => {
    await keyLimits?.recordFailure(request.ip);
    throw error;
  };

  const key = async (): Promise<{ key: CallerKey }> => {
    await keyLimits?.admitAddress(request.ip);
    const text = request.header('api-key').trim();
    if (text === '') return await fail(unauthenticated('key'));
    const found = isWellFormedApiKey(text)
      ? await keyByHash(pool, (await served()).schema('accounts'), hashSecret(text))
      : null;
    if (found === null) return await fail(unauthenticated('key', 'Invalid API key.'));
    note.keyId = found.id;
    note.userId = found.user_id;
    const violation = findViolation(
      { allowedOrigins: found.allowed_origins, allowedIps: found.allowed_ips },
      { origin: request.header('origin') || request.header('x-origin'), ip: request.ip },
    );
    if (violation !== null) {
      const what = violation === 'origin' ? 'origin' : 'IP address';
      return await fail(permissionDenied(`This API key may not be used from this ${what}.`));
    }
    const caller = { id: found.id, userId: found.user_id, rateLimitPerHour: found.rate_limit_per_hour };
    const slot = await keyLimits?.reserve(caller, request.ip);
    if (slot !== undefined) note.settle = (status) => slot.settle(status);
    return { key: caller };
  };

  const session = async (): Promise<{ user: CallerUser; tokenHash: string }> => {
    const header = request.header('authorization').trim();
    const match = /^Bearer[ ]+(\S+)$/i.exec(header);
    const token = match?.[1];
    if (header === '' || !/^Bearer(\s|$)/i.test(header)) throw unauthenticated('session');
    if (token === undefined) throw unauthenticated('session', 'Invalid token header.');
    const tokenHash = hashSecret(token);
    const found = await sessionByTokenHash(pool, (await served()).schema('accounts'), tokenHash);
    if (found === null || found.expires_at <= now()) throw unauthenticated('session', 'Invalid token.');
    note.userId = found.user_id;
    return { user: { id: found.user_id, username: found.username, email: found.email }, tokenHash };
  };

  return {
    none: async () => ({}),
    key,
    session,
    'key-or-session': async () => {
      const hasKey = request.header('api-key').trim() !== '';
      if (hasKey || request.header('authorization').trim() === '') return await key();
      return { user: (await session()).user };
    },
  };
}
