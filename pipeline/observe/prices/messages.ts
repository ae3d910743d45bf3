import type { LogBatch } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { PricesMessage } from '../../../schemas/messages/prices.ts';
import { requestsMessage } from '../../../schemas/messages/requests.ts';
import { tokensMessage } from '../../../schemas/messages/tokens.ts';
import { topics } from '../../../schemas/topics.ts';
import { jsonOf } from '../../log-reading.ts';
import type { Verdict } from './guard.ts';

export function observedMessage(
  source: string,
  token: Felt,
  { price, confidence, observedAt }: Extract<Verdict, { kind: 'accepted' }>,
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

/** Answers a request for which there is no new price. */
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

/** The API stops waiting long before. */
const REQUEST_TTL_MS = 60_000;

export interface PriceTriggers {
  /** Requested tokens, with the time of the newest request of each. */
  readonly requested: ReadonlyMap<Felt, number>;
  /** Tokens that a token list names. */
  readonly listed: readonly Felt[];
}

/** Reads which tokens a batch of `requests` or `tokens` wants priced; skips invalid messages and expired requests. */
export function readTriggers(
  { topic, partition, messages }: LogBatch,
  now: number,
  log: Logger,
): PriceTriggers {
  const requested = new Map<Felt, number>();
  const listed = new Set<Felt>();
  for (const { offset, value } of messages) {
    const json = jsonOf(value);
    if (topic === topics.requests.name) {
      const { data } = requestsMessage.safeParse(json);
      if (data?.type === 'price.requested' && data.requested_at > now - REQUEST_TTL_MS)
        requested.set(data.token, Math.max(data.requested_at, requested.get(data.token) ?? 0));
      if (data !== undefined) continue;
    } else {
      const { data } = tokensMessage.safeParse(json);
      if (data?.type === 'token.listed' && (data.verified || data.common || data.public) && !data.hidden)
        listed.add(data.token);
      if (data !== undefined) continue;
    }
    log.warn({ topic, partition, offset }, 'invalid message skipped');
  }
  return { requested, listed: [...listed] };
}
