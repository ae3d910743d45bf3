import type { LogBatch } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { requestsMessage } from '../../../schemas/messages/requests.ts';
import { tokensMessage } from '../../../schemas/messages/tokens.ts';
import { topics } from '../../../schemas/topics.ts';
import { jsonOf } from '../../log-reading.ts';

/** Who asked so long ago has stopped waiting. */
const PATIENCE_MS = 60_000;

export interface PriceNews {
  /** Something wants the price of these now: the newest request of each. */
  readonly asked: ReadonlyMap<Felt, number>;
  /** A list names these. */
  readonly fresh: readonly Felt[];
}

/** What a batch of `requests` or `tokens` says of prices. A message that cannot be read asks for nothing. */
export function readPriceNews({ topic, partition, messages }: LogBatch, now: number, log: Logger): PriceNews {
  const asked = new Map<Felt, number>();
  const fresh = new Set<Felt>();
  for (const { offset, value } of messages) {
    const json = jsonOf(value);
    if (topic === topics.requests.name) {
      const { data } = requestsMessage.safeParse(json);
      if (data?.type === 'price.requested' && data.requested_at > now - PATIENCE_MS)
        asked.set(data.token, Math.max(data.requested_at, asked.get(data.token) ?? 0));
      if (data !== undefined) continue;
    } else {
      const { data } = tokensMessage.safeParse(json);
      if (data?.type === 'token.listed' && (data.verified || data.common || data.public) && !data.hidden)
        fresh.add(data.token);
      if (data !== undefined) continue;
    }
    log.warn({ topic, partition, offset }, 'passed over a message that cannot be read');
  }
  return { asked, fresh: [...fresh] };
}
