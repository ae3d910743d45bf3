import { Resolver, lookup } from 'node:dns/promises';

/** All addresses of a host, in the order to try them; rejects, or gives none, when it does not resolve. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** One unanswered question is asked again once. */
const NAME_SERVER_MS = 2000;
const TRIES = 2;

/**
 * Asks the name servers that are given (`ip`, `ip:port`), else the system its way, hosts file and all. The system is
 * asked on a few threads of the process, which names that are slow to resolve can take up: name servers are better
 * where strangers choose the names. Calls at the same time for one host share one answer; none is kept.
 */
export function createResolve(servers: readonly string[]): Resolve {
  const ask = servers.length === 0 ? askSystem : askServers(servers);
  const asked = new Map<string, Promise<readonly string[]>>();
  return (host) => {
    const running = asked.get(host);
    if (running !== undefined) return running;
    const answer = ask(host).finally(() => asked.delete(host));
    asked.set(host, answer);
    return answer;
  };
}

const askSystem: Resolve = async (host) => {
  const found = await lookup(host, { all: true });
  return found.map(({ address }) => address);
};

function askServers(servers: readonly string[]): Resolve {
  const resolver = new Resolver({ timeout: NAME_SERVER_MS, tries: TRIES });
  resolver.setServers(servers);
  return async (host) => {
    const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    // What one kind of record does not tell is not called either.
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  };
}
