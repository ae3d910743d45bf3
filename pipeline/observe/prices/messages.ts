import { jsonOf } from '../../../infra/json.ts';
import type { LogBatch } from '../../../infra/kafka/client.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { PricesMessage } from '../../../schemas/messages/prices.ts';
import { tokensMessage } from '../../../schemas/messages/tokens.ts';
import type { Observer } from '../observer.ts';
import type { Verdict } from './guard.ts';

export function observedMessage(
  source: string,
  token: Felt,
  { price, confidence, observedAt }: Extract<Verdict, { kind: 'accepted' }>,
  { requestedAt = null, cause }: { readonly requestedAt?: number | null; readonly cause?: 'backfill' } = {},
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
    cause,
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

/** Reads which tokens a batch of `tokens` lists; skips invalid messages. */
export function listedTokens(
  { log }: Pick<Observer, 'log'>,
  { topic, partition, messages }: LogBatch,
): Felt[] {
  const listed = new Set<Felt>();
  for (const { offset, value } of messages) {
    const { data } = tokensMessage.safeParse(jsonOf(value));
    if (data === undefined) log.warn({ topic, partition, offset }, 'invalid message skipped');
    else if (data.type === 'token.listed' && (data.verified || data.common || data.public) && !data.hidden)
      listed.add(data.token);
  }
  return [...listed];
}
