import { createHash } from 'node:crypto';

import { withTimeout } from '../../infra/lifecycle.ts';
import type { Publisher } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import { createWaiters } from '../../infra/waiters.ts';
import { requestSubject, requestsMessage } from '../../schemas/messages/requests.ts';
import type { RequestsMessage } from '../../schemas/messages/requests.ts';
import { topics } from '../../schemas/topics.ts';
import type { RequestInfo } from '../http/route.ts';

/** A refresh to request from the observers, without the envelope, which the bus adds. */
export type RefreshRequest = {
  [T in RequestsMessage['type']]: Omit<Extract<RequestsMessage, { type: T }>, 'v' | 'requested_at'>;
}[RequestsMessage['type']];

/** When a refresh was requested, unix milliseconds: an observation made for it has at least this `requested_at`. */
export type RequestedAt = (request: RefreshRequest) => number;

/** The `caller` of a request: a user, with all keys and sessions, as keys are unlimited. */
export const refreshCaller = (request: Pick<RequestInfo, 'caller'>): string =>
  createHash('sha256').update(request.caller().user).digest('hex').slice(0, 16);

export interface RefreshBus {
  /**
   * Appends the requests and waits until `find` returns their results; null on timeout. `find` is called once at the
   * start and after each notification of one of the subjects.
   */
  refresh<T>(
    requests: readonly RefreshRequest[],
    find: (requestedAt: RequestedAt) => Promise<T | null>,
    signal?: AbortSignal,
  ): Promise<T | null>;
  /** Appends the requests without waiting: their results show in a later answer. */
  request(requests: readonly RefreshRequest[]): void;
  /** Called for every notification that a subject was observed. */
  notify(subject: string): void;
}

export interface RefreshBusDeps {
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly log: Logger;
  readonly now: () => number;
  /** The longest that a client waits (decision 70). */
  readonly waitMs?: number;
}

const WAIT_MS = 8000;

/** Equal requests of one caller within this time share one message. */
const SHARED_MS = 1000;

/** Notifications of many subjects arrive in bursts; one query serves a burst. */
const GATHER_MS = 10;

interface Pending {
  readonly requestedAt: number;
  /** Resolves when the request is appended; false when the append failed. */
  readonly published: Promise<boolean>;
}

/** With the caller: a request that shared another caller's message would wait in that caller's line. */
const keyOf = (request: RefreshRequest): string =>
  `${request.type} ${requestSubject(request)} ${request.caller ?? ''}`;

export function createRefreshBus({ publisher, log, now, waitMs = WAIT_MS }: RefreshBusDeps): RefreshBus {
  const waiters = createWaiters();
  const request = createRequester({ publisher, log, now });

  return {
    async refresh(requests, find, signal) {
      const deadline = performance.now() + waitMs;
      const pending = request(requests);
      const requestedAt: RequestedAt = (one) => pending.get(one)?.requestedAt ?? 0;
      // A request that is not appended has no result to wait for; another caller's may already be stored.
      if (!(await withTimeout(areAppended(pending.values()), waitMs, false))) return await find(requestedAt);
      const subjects = new Set(requests.map(requestSubject));
      const gatherMs = subjects.size > 1 ? GATHER_MS : 0;
      return await waiters.until(subjects, () => find(requestedAt), { deadline, signal, gatherMs });
    },
    request(requests) {
      request(requests);
    },
    notify: (subject) => waiters.notify(subject),
  };
}

async function areAppended(pending: Iterable<Pending>): Promise<boolean> {
  const all = await Promise.all([...pending].map(({ published }) => published));
  return !all.includes(false);
}

/** Appends requests, merging those that were already requested within `SHARED_MS`. */
function createRequester({
  publisher,
  log,
  now,
}: Pick<RefreshBusDeps, 'publisher' | 'log' | 'now'>): (
  requests: readonly RefreshRequest[],
) => Map<RefreshRequest, Pending> {
  /** By type, subject and caller, oldest first. */
  const shared = new Map<string, Pending>();

  const append = async (messages: readonly RequestsMessage[]): Promise<boolean> => {
    try {
      await publisher.publish(
        topics.requests,
        messages.map((value) => ({ key: requestSubject(value), value })),
      );
      return true;
    } catch (error) {
      log.warn({ err: error, requests: messages.length }, 'refresh requests not appended');
      return false;
    }
  };

  return (requests) => {
    const requestedAt = now();
    for (const [key, previous] of shared) {
      // Absolute: the clock may be set back.
      if (Math.abs(requestedAt - previous.requestedAt) < SHARED_MS) break;
      shared.delete(key);
    }
    const messages = new Map<string, RequestsMessage>();
    for (const request of requests) {
      const key = keyOf(request);
      if (!shared.has(key))
        messages.set(key, requestsMessage.parse({ v: 1, requested_at: requestedAt, ...request }));
    }
    if (messages.size > 0) {
      const published = append([...messages.values()]);
      for (const key of messages.keys()) shared.set(key, { requestedAt, published });
      void published.then((isAppended) => {
        if (isAppended) return;
        // Otherwise the next caller would share a request that the log does not have.
        for (const key of messages.keys()) if (shared.get(key)?.published === published) shared.delete(key);
      });
    }
    return new Map(
      requests.map((request) => [
        request,
        shared.get(keyOf(request)) ?? { requestedAt, published: Promise.resolve(false) },
      ]),
    );
  };
}
