import { Resolver, lookup } from 'node:dns/promises';

/** Returns all addresses of a host in the order to try them; rejects, or returns none, when it does not resolve. */
export type Resolve = (host: string) => Promise<readonly string[]>;

const NAME_SERVER_MS = 2000;
const TRIES = 2;

/**
 * Resolves with the given name servers (`ip`, `ip:port`), or with the system's resolver and hosts file. The system's resolver
 * blocks one of the process's few threads per lookup, so slow names can exhaust them: name servers are better where
 * clients choose the names. Concurrent lookups of a host share one answer; answers are not cached.
 */
export function createResolve(servers: readonly string[]): Resolve {
  const lookUp = servers.length === 0 ? systemLookup : serverLookup(servers);
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

function serverLookup(servers: readonly string[]): Resolve {
  const resolver = new Resolver({ timeout: NAME_SERVER_MS, tries: TRIES });
  resolver.setServers(servers);
  return async (host) => {
    const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    // One failed record type leaves the addresses of the other.
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  };
}
