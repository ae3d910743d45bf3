import type { Clock } from '../../../infra/clock.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Sealing } from '../../../infra/sealing.ts';
import { secretOf } from '../../../projections/webhooks/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { signatureHeaders } from '../../../schemas/webhooks/signature.ts';
import type { Egress, EgressAnswer } from '../../egress/egress.ts';
import { EgressError } from '../../egress/errors.ts';
import type { DeliveryClaim } from './claims.ts';
import type { SendResult } from './sender.ts';

/** Some firewalls reject requests without a User-Agent. */
const USER_AGENT = 'token-data-service webhooks';

/** All deliveries may fail alike, as with another SECRET_KEY, which raises an alarm. */
const UNREADABLE_LOG_MS = 60_000;

/** Maximum stored bytes of a response body (decision 46). */
const MAX_RESPONSE_BYTES = 16_384;

const TEXT_TYPE =
  /^(text\/|application\/([a-z0-9.+-]*\+)?(json|xml|problem)|application\/x-www-form-urlencoded)/i;

/** Makes one attempt: signs and sends the request, and reads the response. Rejects only when the signal is aborted. */
export function createSend({
  egress,
  sealing,
  clock,
  log,
  timeoutMs,
}: {
  readonly egress: Egress;
  readonly sealing: Sealing;
  readonly clock: Clock;
  readonly log: Logger;
  readonly timeoutMs: number;
}): (claim: DeliveryClaim, signal: AbortSignal) => Promise<SendResult> {
  let quietUntil = -Infinity;
  return async (claim, signal) => {
    try {
      const response = await egress.request(claim.url, {
        method: 'POST',
        headers: {
          ...headersOf(claim, sealing, clock.wallTime()),
          'content-type': 'application/json',
          'user-agent': USER_AGENT,
        },
        body: claim.body,
        timeoutMs,
        maxBytes: MAX_RESPONSE_BYTES,
        signal,
      });
      return {
        responseCode: response.status,
        responseBody: textOf(response),
        error: errorOf(response.status),
      };
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof EgressError) return failed(error.message);
      // An error of this service, such as a secret that cannot be decrypted, must not stop other deliveries.
      const isRepeated = isUnreadable(error) && clock.now() < quietUntil;
      if (isRepeated) return failed(NOT_SENT);
      if (isUnreadable(error)) quietUntil = clock.now() + UNREADABLE_LOG_MS;
      log.error(
        { err: error, delivery: claim.id, webhook: claim.webhookId },
        'delivery not sent: internal error',
      );
      return failed(NOT_SENT);
    }
  };
}

const NOT_SENT = 'the delivery could not be sent';
const failed = (error: string): SendResult => ({ responseCode: null, responseBody: null, error });

function headersOf(claim: DeliveryClaim, sealing: Sealing, now: number): Record<string, string> {
  const { secret, previous, previousUntil, userId } = claim.secrets;
  const isPreviousValid = previous !== null && previousUntil !== null && now < previousUntil;
  return signatureHeaders({
    body: claim.body,
    secret: sealing.open(secret, secretOf(userId)),
    previousSecret: isPreviousValid ? openIfReadable(sealing, previous, secretOf(userId)) : null,
    deliveryId: claim.id,
    event: claim.event,
    attempt: claim.attempts + 1,
    timestampSeconds: Math.floor(now / 1000),
  });
}

/** null where it was sealed with a key that is lost: the secret that was rotated in its place signs alone. */
function openIfReadable(sealing: Sealing, sealed: string, owner: string): string | null {
  try {
    return sealing.open(sealed, owner);
  } catch (error) {
    if (isUnreadable(error)) return null;
    throw error;
  }
}

const isUnreadable = (error: unknown): boolean =>
  error instanceof AppError && error.code === 'SECRET_UNREADABLE';

/** null: accepted. */
function errorOf(status: number): string | null {
  if (status >= 200 && status < 300) return null;
  return status >= 300 && status < 400
    ? `answered ${status}: redirects are not followed`
    : `answered ${status}`;
}

/** Without a Content-Type, valid UTF-8 is treated as text. */
function textOf({ headers, body }: EgressAnswer): string | null {
  const type = headers['content-type'];
  const isDeclaredText = type !== undefined && TEXT_TYPE.test(type);
  if (body.length === 0 || (type !== undefined && !isDeclaredText)) return null;
  try {
    // `stream` drops a character that was cut at MAX_RESPONSE_BYTES.
    return new TextDecoder('utf-8', { fatal: !isDeclaredText }).decode(body, { stream: true });
  } catch {
    return null;
  }
}
