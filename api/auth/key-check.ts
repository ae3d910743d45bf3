import { restrictionsOf } from '../../projections/accounts/queries.ts';
import type { KeyByHash } from '../../projections/accounts/queries.ts';
import { hashSecret, isWellFormedApiKey } from './api-key.ts';
import { addressBlock } from '../http/client-address.ts';
import { HttpError, permissionDenied, unauthenticated } from '../http/errors.ts';
import { rateLimitHeaders, wholeSeconds } from '../limits/allowance.ts';
import { HOUR_MS } from '../http/times.ts';
import type { Slot } from '../limits/ceilings.ts';
import type { Limits } from '../limits/limits.ts';
import type { CallerNote } from '../http/request-state.ts';
import { findViolation } from './restrictions.ts';
import type { CallerKey, RequestInfo } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';

export interface KeyCheckDeps {
  /** `keyByHash` of the projections. Keys are read after each call arrives, because a cached one would work after its deletion. */
  readonly findKey: (schema: string, keyHash: string) => Promise<KeyByHash | null>;
  readonly limits: Pick<Limits, 'ceilings' | 'addressFailures'>;
  /** Calls per hour of a key created without a ceiling; null: unlimited. */
  readonly defaultCeiling: number | null;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Why a key was rejected, for the log. */
type Refusal = 'missing' | 'unknown' | 'origin' | 'ip' | 'ceiling';

/**
 * Checks a call with an API key in the order of the contract:
 *
 * | The address failed ten checks within five minutes                     | 403 `ip_blocked`        |
 * | The key is missing, unknown, deleted or expired, or its user is disabled | 401                    |
 * | An `Origin` or `X-Origin` that is not in `allowed_origins`            | 403 `permission_denied` |
 * | No origin header, and an address that is not in `allowed_ips`         | 403 `permission_denied` |
 * | `rate_limit_per_hour` calls succeeded in the last hour                | 403 `rate_limited`      |
 *
 * Every rejection except `ip_blocked` counts as a failure of the address.
 */
export async function checkKey(
  { findKey, limits, defaultCeiling, now }: KeyCheckDeps,
  request: RequestInfo,
  served: () => Promise<ServedBuilds>,
  note: CallerNote,
): Promise<CallerKey> {
  const block = addressBlock(request.ip);
  const fail = async (refusal: Refusal, error: HttpError): Promise<never> => {
    note.refusal = refusal;
    // Concurrent failures may have blocked the address meanwhile.
    rejectBlocked(await limits.addressFailures.record(block), note);
    throw error;
  };

  rejectBlocked(await limits.addressFailures.blockedFor(block), note);

  const text = request.header('api-key').trim();
  if (text === '') return await fail('missing', unauthenticated('key'));
  const found = isWellFormedApiKey(text)
    ? await findKey((await served()).schema('accounts'), hashSecret(text))
    : null;
  if (found === null || (found.expires_at !== null && found.expires_at <= now()))
    return await fail('unknown', unauthenticated('key', 'Invalid API key.'));
  note.keyId = found.id;
  note.userId = found.user_id;

  const violation = findViolation(
    { allowedOrigins: found.allowed_origins, allowedIps: found.allowed_ips },
    { origin: request.header('origin') || request.header('x-origin'), ip: request.ip },
  );
  if (violation !== null) {
    const what = violation === 'origin' ? 'origin' : 'IP address';
    return await fail(violation, permissionDenied(`This API key may not be used from this ${what}.`));
  }

  const ceiling = found.rate_limit_per_hour ?? defaultCeiling;
  const refused = await reserveCall(limits, { name: String(found.id), ceiling }, note);
  if (refused !== null) return await fail('ceiling', overCeiling(refused));
  return { id: found.id, userId: found.user_id, tokenHash: null, restrictions: restrictionsOf(found) };
}

/** Reserves a call under an hourly ceiling (null: none). Returns the slot if there is none left. */
async function reserveCall(
  limits: Pick<Limits, 'ceilings'>,
  { name, ceiling }: { readonly name: string; readonly ceiling: number | null },
  note: CallerNote,
): Promise<Slot | null> {
  if (ceiling === null) return null;
  const slot = await limits.ceilings.reserve(name, ceiling);
  if (!slot.isAllowed) return slot;
  note.settle = async (status) => {
    const isSuccess = status >= 200 && status < 300;
    const released = slot.end(isSuccess).catch(() => {
      // An unreleased slot expires.
    });
    // After a failure the caller may retry at once and must find the slot released.
    if (!isSuccess) await released;
    const remaining = isSuccess ? slot.remaining : slot.remaining + 1;
    return rateLimitHeaders('hour', HOUR_MS, { ...slot, remaining });
  };
  return null;
}

/**
 * Counts a call by session on a route that takes an API key. All sessions of a user share one ceiling: that of a key
 * without a ceiling of its own. A session token cannot be guessed, so a rejection does not count as a failure of the
 * address.
 */
export async function countSessionCall(
  { limits, defaultCeiling }: KeyCheckDeps,
  userId: number,
  note: CallerNote,
): Promise<void> {
  const refused = await reserveCall(limits, { name: `user ${userId}`, ceiling: defaultCeiling }, note);
  if (refused === null) return;
  note.refusal = 'ceiling';
  throw overCeiling(refused, 'The hourly rate limit of this user');
}

function rejectBlocked(ms: number, note: CallerNote): void {
  if (ms <= 0) return;
  note.refusal = 'blocked';
  const wait = wholeSeconds(ms);
  throw new HttpError(
    403,
    'ip_blocked',
    `Too many failed requests from this IP address. It is blocked for ${wait} more seconds.`,
    { headers: { 'Retry-After': String(wait) } },
  );
}

function overCeiling(slot: Slot, what = "This API key's hourly rate limit"): HttpError {
  const wait = wholeSeconds(slot.resetMs);
  return new HttpError(403, 'rate_limited', `${what} is exceeded. Expected available in ${wait} seconds.`, {
    headers: { 'Retry-After': String(wait), ...rateLimitHeaders('hour', HOUR_MS, slot) },
  });
}
