import type { Felt } from '../../../schemas/felt.ts';
import type { topics, MessageOf } from '../../../schemas/topics.ts';
import type { Verdict } from './guard.ts';

/** What the log is told of a price that the guard believes. */
export function observedMessage(
  source: string,
  token: Felt,
  { price, confidence, observedAt }: Extract<Verdict, { kind: 'publish' }>,
): MessageOf<typeof topics.prices> {
  return { type: 'price.observed', v: 1, token, price, source, confidence, observed_at: observedAt };
}
