import type { Clock } from '../../../infra/clock.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Sealing } from '../../../infra/sealing.ts';
import { secretOf } from '../../../projections/webhooks/queries.ts';
import { signatureHeaders } from '../../../schemas/webhooks/signature.ts';
import type { Egress, EgressAnswer } from '../../egress/egress.ts';
import { EgressError } from '../../egress/errors.ts';
import type { Claim } from '../deliveries.ts';
import type { Answer } from './sender.ts';

/** Some firewalls refuse what names nobody. */
const USER_AGENT = 'token-data-service webhooks';

/** Of an answer's body that is kept (decision 46). */
const CAPTURED_BYTES = 16_384;

const TEXT = /^(text\/|application\/([a-z0-9.+-]*\+)?(json|xml|problem)|application\/x-www-form-urlencoded)/i;

/** Makes one attempt: signs, sends, and reads what is answered. Rejects only when the signal fires. */
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
}): (claim: Claim, signal: AbortSignal) => Promise<Answer> {
  return async (claim, signal) => {
    try {
      const answer = await egress.request(claim.url, {
        method: 'POST',
        headers: {
          ...headersOf(claim, sealing, clock.now()),
          'content-type': 'application/json',
          'user-agent': USER_AGENT,
        },
        body: claim.body,
        timeoutMs,
        maxBytes: CAPTURED_BYTES,
        signal,
      });
      return { responseCode: answer.status, responseBody: textOf(answer), error: errorOf(answer.status) };
    } catch (error) {
      if (signal.aborted) throw error;
      if (error instanceof EgressError) return failed(error.message);
      // A secret that no key opens, say: this service's own affair, and no reason to stop the deliveries of others.
      log.error({ err: error, delivery: claim.id, webhook: claim.webhookId }, 'a delivery could not be sent');
      return failed('the delivery could not be sent');
    }
  };
}

const failed = (error: string): Answer => ({ responseCode: null, responseBody: null, error });

function headersOf(claim: Claim, sealing: Sealing, now: number): Record<string, string> {
  const { secret, previous, previousUntil, userId } = claim.secrets;
  const isGrace = previous !== null && previousUntil !== null && now < previousUntil;
  return signatureHeaders({
    body: claim.body,
    secret: sealing.open(secret, secretOf(userId)),
    previousSecret: isGrace ? sealing.open(previous, secretOf(userId)) : null,
    deliveryId: claim.id,
    event: claim.event,
    attempt: claim.attempts + 1,
    timestampSeconds: Math.floor(now / 1000),
  });
}

/** null: the receiver has it. */
function errorOf(status: number): string | null {
  if (status >= 200 && status < 300) return null;
  return status >= 300 && status < 400
    ? `answered ${status}: redirects are not followed`
    : `answered ${status}`;
}

/** What is not said to be text counts as such where nothing is said of it, and it is UTF-8. */
function textOf({ headers, body }: EgressAnswer): string | null {
  const type = headers['content-type'];
  const isSaid = type !== undefined && TEXT.test(type);
  if (body.length === 0 || (type !== undefined && !isSaid)) return null;
  try {
    // As a stream: the character that lies across the end of what is kept is left out.
    return new TextDecoder('utf-8', { fatal: !isSaid }).decode(body, { stream: true });
  } catch {
    return null;
  }
}
