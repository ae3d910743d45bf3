/**
 * How many documents are fetched from each host at a time. One that hangs holds its own places and no others: what would
 * wait for it is put off, and the rest goes on.
 */
export interface Hosts {
  /** Takes a place; false: it has none left. */
  enter(host: string): boolean;
  leave(host: string): void;
  /** Those without a place. */
  full(): string[];
}

/** @param most places of a host, by its name */
export function createHosts(most: (host: string) => number): Hosts {
  const running = new Map<string, number>();
  return {
    enter(host) {
      const now = running.get(host) ?? 0;
      if (now >= most(host)) return false;
      running.set(host, now + 1);
      return true;
    },
    leave(host) {
      const left = (running.get(host) ?? 0) - 1;
      if (left > 0) running.set(host, left);
      else running.delete(host);
    },
    full: () => [...running].filter(([host, now]) => now >= most(host)).map(([host]) => host),
  };
}
