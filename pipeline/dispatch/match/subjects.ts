import type { Subscriber } from '../../../projections/webhooks/queries.ts';

/** A token and the accounts that something happened to; a subscription may name either, both or neither. */
export interface Happening {
  readonly token: string;
  readonly accounts: readonly string[];
}

/** Every token and every account that something happened to, each once. */
export function subjectsOf(happenings: readonly Happening[]): { tokens: string[]; accounts: string[] } {
  return {
    tokens: [...new Set(happenings.map(({ token }) => token))],
    accounts: [...new Set(happenings.flatMap(({ accounts }) => accounts))],
  };
}

const ANY = '';
const keyOf = (token: string, address: string): string => `${token} ${address}`;

/** The webhooks that each happening concerns, each once however many of its subscriptions it meets. */
export function webhooksBySubject(
  subscribers: readonly Subscriber[],
): (happening: Happening) => ReadonlySet<number> {
  const bySubject = new Map<string, number[]>();
  for (const { webhook_id: webhook, token, address } of subscribers) {
    const key = keyOf(token, address);
    const webhooks = bySubject.get(key) ?? [];
    bySubject.set(key, webhooks);
    webhooks.push(webhook);
  }
  return ({ token, accounts }) => {
    const found = new Set<number>();
    for (const address of [ANY, ...accounts])
      for (const key of [keyOf(ANY, address), keyOf(token, address)])
        for (const webhook of bySubject.get(key) ?? []) found.add(webhook);
    return found;
  };
}
