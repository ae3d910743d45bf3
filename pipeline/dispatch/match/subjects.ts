import type { Subscriber } from '../../../projections/webhooks/queries.ts';

/** The token and accounts of an event; a subscription may name either, both or neither. */
export interface EventSubject {
  readonly token: string;
  readonly accounts: readonly string[];
}

/** All tokens and accounts of some events, without duplicates. */
export function distinctSubjects(subjects: readonly EventSubject[]): {
  tokens: string[];
  accounts: string[];
} {
  return {
    tokens: [...new Set(subjects.map(({ token }) => token))],
    accounts: [...new Set(subjects.flatMap(({ accounts }) => accounts))],
  };
}

const ANY = '';
const keyOf = (token: string, address: string): string => `${token} ${address}`;

/** Returns a look-up of the webhooks whose subscriptions match an event, each webhook once. */
export function indexSubscribers(
  subscribers: readonly Subscriber[],
): (subject: EventSubject) => ReadonlySet<number> {
  const webhooksByKey = new Map<string, number[]>();
  for (const { webhook_id: webhook, token, address } of subscribers) {
    const key = keyOf(token, address);
    const webhooks = webhooksByKey.get(key) ?? [];
    webhooksByKey.set(key, webhooks);
    webhooks.push(webhook);
  }
  return ({ token, accounts }) => {
    const found = new Set<number>();
    for (const address of [ANY, ...accounts])
      for (const key of [keyOf(ANY, address), keyOf(token, address)])
        for (const webhook of webhooksByKey.get(key) ?? []) found.add(webhook);
    return found;
  };
}
