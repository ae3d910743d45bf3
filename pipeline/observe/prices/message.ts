import type { Felt } from '../../../schemas/felt.ts';
import type { PricesMessage } from '../../../schemas/messages/prices.ts';
import type { Verdict } from './guard.ts';

/** What the log is told of a price that the guard believes. */
export function observedMessage(
  source: string,
  token: Felt,
  { price, confidence, observedAt }: Extract<Verdict, { kind: 'publish' }>,
  requestedAt: number | null = null,
): PricesMessage {
  return {
    type: 'price.observed',
    v: 1,
    token,
    price,
    source,
    confidence,
    observed_at: observedAt,
    ...(requestedAt === null ? {} : { requested_at: requestedAt }),
  };
}

/** What those who asked are told when there is no new price. */
export function unchangedMessage(
  source: string,
  token: Felt,
  { reason, readAt, requestedAt }: { reason: string; readAt: number; requestedAt: number },
): PricesMessage {
  return {
    type: 'price.unchanged',
    v: 1,
    token,
    source,
    reason,
    observed_at: readAt,
    requested_at: requestedAt,
  };
}
