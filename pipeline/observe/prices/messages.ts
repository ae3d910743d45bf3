import type { LogBatch } from '../../../infra/kafka/client.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { PricesMessage } from '../../../schemas/messages/prices.ts';
import { tokensMessage } from '../../../schemas/messages/tokens.ts';
import { topics } from '../../../schemas/topics.ts';
import { jsonOf } from '../../log-reading.ts';
import { readRequests } from '../observer.ts';
import type { Observer } from '../observer.ts';
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

export interface PriceTriggers {
  /** Requested tokens, with the time of the newest request of each. */
  readonly requested: ReadonlyMap<Felt, number>;
  /** Tokens that a token list names. */
  readonly listed: readonly Felt[];
}

/** Reads which tokens a batch of `requests` or `tokens` wants priced; skips invalid messages and expired requests. */
export function readTriggers(observer: Pick<Observer, 'now' | 'log'>, batch: LogBatch): PriceTriggers {
  return batch.topic === topics.requests.name
    ? { requested: requestedTokens(readRequests(observer, batch, 'price.requested')), listed: [] }
    : { requested: new Map(), listed: listedTokens(observer, batch) };
}

function requestedTokens(
  requests: readonly { readonly token: Felt; readonly requested_at: number }[],
): ReadonlyMap<Felt, number> {
  return new Map(
    requests.toSorted((a, b) => a.requested_at - b.requested_at).map((one) => [one.token, one.requested_at]),
  );
}

function listedTokens({ log }: Pick<Observer, 'log'>, { topic, partition, messages }: LogBatch): Felt[] {
  const listed = new Set<Felt>();
  for (const { offset, value } of messages) {
    const { data } = tokensMessage.safeParse(jsonOf(value));
    if (data === undefined) log.warn({ topic, partition, offset }, 'invalid message skipped');
    else if (data.type === 'token.listed' && (data.verified || data.common || data.public) && !data.hidden)
      listed.add(data.token);
  }
  return [...listed];
}
