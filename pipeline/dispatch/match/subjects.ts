import type { Subject, Subscriber } from '../../../projections/webhooks/queries.ts';

/** A token and the accounts that something happened to; a subscription may name either, both or neither. */
export interface Happening {
  readonly token: string;
  readonly accounts: readonly string[];
}

const keyOf = ({ token, address }: Subject): string => `${token} ${address}`;

const ANY = '';

function subjectsOf({ token, accounts }: Happening): Subject[] {
  return [
    { token: ANY, address: ANY },
    { token, address: ANY },
    ...accounts.flatMap((address) => [
      { token: ANY, address },
      { token, address },
    ]),
  ];
}

/** Every subject that a subscription to one of these may name, each once. */
export function subjectsOfAll(happenings: readonly Happening[]): Subject[] {
  const subjects = new Map<string, Subject>();
  for (const happening of happenings)
    for (const subject of subjectsOf(happening)) subjects.set(keyOf(subject), subject);
  return [...subjects.values()];
}

/** The webhooks that each happening concerns, each once however many of its subscriptions it meets. */
export function webhooksBySubject(
  subscribers: readonly Subscriber[],
): (happening: Happening) => ReadonlySet<number> {
  const bySubject = new Map<string, number[]>();
  for (const subscriber of subscribers) {
    const key = keyOf(subscriber);
    const webhooks = bySubject.get(key) ?? [];
    bySubject.set(key, webhooks);
    webhooks.push(subscriber.webhook_id);
  }
  return (happening) => {
    const found = new Set<number>();
    for (const subject of subjectsOf(happening))
      for (const webhook of bySubject.get(keyOf(subject)) ?? []) found.add(webhook);
    return found;
  };
}
