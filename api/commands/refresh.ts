import { pause } from '../../infra/lifecycle.ts';
import type { Publisher } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import { requestSubject, requestsMessage } from '../../schemas/messages/requests.ts';
import type { RequestsMessage } from '../../schemas/messages/requests.ts';
import { topics } from '../../schemas/topics.ts';

/** What is asked of the observers; the envelope is made here. */
export type RefreshRequest = {
  [T in RequestsMessage['type']]: Omit<Extract<RequestsMessage, { type: T }>, 'v' | 'requested_at'>;
}[RequestsMessage['type']];

/** When a subject was asked for, unix milliseconds: what is observed for it says at least this as its `requested_at`. */
export type AskedAt = (request: RefreshRequest) => number;

export interface RefreshBus {
  /**
   * Appends the requests and waits until `look` finds what they brought; null when it was not there in time. `look` is
   * asked once at first, then whenever one of the subjects was heard of.
   */
  refresh<T>(
    requests: readonly RefreshRequest[],
    look: (askedAt: AskedAt) => Promise<T | null>,
    signal?: AbortSignal,
  ): Promise<T | null>;
  /** Appends the requests and waits for nothing: what they bring shows in a later answer. */
  ask(requests: readonly RefreshRequest[]): void;
  /** Wakes who waits for this subject; called for every notification. */
  wake(subject: string): void;
}

export interface RefreshBusDeps {
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly log: Logger;
  readonly now: () => number;
  /** The longest that a client waits (decision 70). */
  readonly waitMs?: number;
}

const WAIT_MS = 8000;

/** Looks for what came without a notification, or whose notification was lost. */
const POLL_MS = 250;

/** Who asks for the same within this time shares one request: what it brings is as new as anyone could have it. */
const SHARED_MS = 1000;

/** Notifications of many subjects come in a row: one look for those of so long. */
const GATHER_MS = 10;

interface Asked {
  readonly askedAt: number;
  /** Resolves when the log has it; false: it does not. */
  readonly published: Promise<boolean>;
}

export function createRefreshBus({ publisher, log, now, waitMs = WAIT_MS }: RefreshBusDeps): RefreshBus {
  const waiting = new Map<string, Set<() => void>>();
  /** By subject, oldest first. */
  const shared = new Map<string, Asked>();

  const append = async (messages: readonly RequestsMessage[]): Promise<boolean> => {
    try {
      await publisher.publish(
        topics.requests,
        messages.map((value) => ({ key: requestSubject(value), value })),
      );
      return true;
    } catch (error) {
      log.warn({ err: error, requests: messages.length }, 'cannot append requests to the log');
      return false;
    }
  };

  const ask = (requests: readonly RefreshRequest[]): Map<RefreshRequest, Asked> => {
    const askedAt = now();
    for (const [key, known] of shared) {
      if (askedAt - known.askedAt < SHARED_MS) break;
      shared.delete(key);
    }
    const keyOf = (request: RefreshRequest): string => `${request.type} ${requestSubject(request)}`;
    const fresh = new Map<string, RequestsMessage>();
    for (const request of requests) {
      const key = keyOf(request);
      if (!shared.has(key))
        fresh.set(key, requestsMessage.parse({ v: 1, requested_at: askedAt, ...request }));
    }
    if (fresh.size > 0) {
      const published = append([...fresh.values()]);
      for (const key of fresh.keys()) shared.set(key, { askedAt, published });
      void published.then((isAppended) => {
        if (isAppended) return;
        for (const key of fresh.keys()) if (shared.get(key)?.published === published) shared.delete(key);
      });
    }
    return new Map(
      requests.map((request) => [request, shared.get(keyOf(request)) ?? { askedAt, published: NEVER }]),
    );
  };

  return {
    async refresh(requests, look, signal) {
      const deadline = performance.now() + waitMs;
      const asked = ask(requests);
      const askedAt: AskedAt = (request) => asked.get(request)?.askedAt ?? 0;
      const subjects = new Set(requests.map(requestSubject));
      const tooLate = new AbortController();
      const appended = await Promise.race([
        Promise.all([...asked.values()].map(({ published }) => published)),
        pause(waitMs, tooLate.signal).then((): boolean[] => []),
      ]).finally(() => tooLate.abort());
      // What is not in the log brings nothing; another request may have.
      if (appended.length < asked.size || appended.includes(false)) return await look(askedAt);
      for (;;) {
        const nudge = new AbortController();
        const wake = (): void => nudge.abort();
        for (const subject of subjects) {
          const wakers = waiting.get(subject) ?? new Set();
          waiting.set(subject, wakers.add(wake));
        }
        try {
          const found = await look(askedAt);
          if (found !== null) return found;
          const left = deadline - performance.now();
          if (left <= 0 || signal?.aborted === true) return null;
          await pause(Math.min(POLL_MS, left), nudge.signal);
          if (subjects.size > 1) await pause(GATHER_MS);
        } finally {
          for (const subject of subjects) {
            const wakers = waiting.get(subject);
            wakers?.delete(wake);
            if (wakers?.size === 0) waiting.delete(subject);
          }
        }
      }
    },
    ask(requests) {
      ask(requests);
    },
    wake(subject) {
      for (const wake of waiting.get(subject) ?? []) wake();
    },
  };
}

const NEVER = Promise.resolve(false);
