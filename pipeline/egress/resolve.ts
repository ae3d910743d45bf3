import { Resolver, lookup } from 'node:dns/promises';

import { sleep } from '../../infra/lifecycle.ts';
import { createLruCache } from '../../infra/lru.ts';

/** Returns all addresses of a host in the order to try them; rejects, or returns none, when it does not resolve. */
export type Resolve = (host: string) => Promise<readonly string[]>;

const NAME_SERVER_MS = 2000;
const TRIES = 2;
/** Lookups that wait for the system's resolver; further ones are rejected at once. */
const MAX_WAITING = 1000;
/** Longest wait for it. */
const WAIT_MS = 3000;
/** A host whose last lookup took less does not wait. */
const QUICK_MS = 1000;
const MAX_QUICK_HOSTS = 10_000;

/**
 * Resolves with the given name servers (`ip`, `ip:port`), or with the system's resolver and hosts file. The system's resolver
 * looks up one new host at a time, which a slow name keeps for seconds, so others may be rejected: name servers are better where
 * clients choose the names. Concurrent lookups of a host share one answer; answers are not cached.
 *
 * @param ofSystem replaces the system's resolver
 */
export function createResolve(servers: readonly string[], ofSystem: Resolve = systemLookup): Resolve {
  const lookUp = servers.length === 0 ? quickHostsFirst(ofSystem) : serverLookup(servers);
  const running = new Map<string, Promise<readonly string[]>>();
  return (host) => {
    const shared = running.get(host);
    if (shared !== undefined) return shared;
    const answer = lookUp(host).finally(() => running.delete(host));
    running.set(host, answer);
    return answer;
  };
}

const systemLookup: Resolve = async (host) => {
  const found = await lookup(host, { all: true });
  return found.map(({ address }) => address);
};

/** Hosts that were found, or not found, quickly the last time do not wait for those that may be slow. */
function quickHostsFirst(lookUp: Resolve): Resolve {
  const quick = createLruCache<string, true>(MAX_QUICK_HOSTS);
  const timed: Resolve = async (host) => {
    const startedAt = performance.now();
    try {
      return await lookUp(host);
    } finally {
      if (performance.now() - startedAt < QUICK_MS) quick.set(host, true);
      else quick.delete(host);
    }
  };
  const queued = oneAtATime(timed);
  return async (host) => await (quick.get(host) === true ? timed(host) : queued(host));
}

/**
 * A lookup of the system's resolver blocks a thread until it ends, also when nobody waits for it any more, and all lookups of
 * the process, those of its stores included, have two threads by default.
 */
function oneAtATime(lookUp: Resolve): Resolve {
  const waiting = new Set<AbortController>();
  let isRunning = false;
  return async (host) => {
    if (isRunning) {
      if (waiting.size >= MAX_WAITING) throw new Error('too many lookups are waiting');
      const turn = new AbortController();
      waiting.add(turn);
      await sleep(WAIT_MS, turn.signal);
      waiting.delete(turn);
      if (!turn.signal.aborted) throw new Error('a slow lookup is running');
    }
    isRunning = true;
    try {
      return await lookUp(host);
    } finally {
      const [next] = waiting;
      if (next === undefined) isRunning = false;
      else {
        waiting.delete(next);
        next.abort();
      }
    }
  };
}

function serverLookup(servers: readonly string[]): Resolve {
  const resolver = new Resolver({ timeout: NAME_SERVER_MS, tries: TRIES });
  resolver.setServers(servers);
  return async (host) => {
    const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    // One failed record type leaves the addresses of the other.
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  };
}
