export type HostSlots = ReturnType<typeof createHostSlots>;

/**
 * Limits concurrent downloads per host, so that a host that hangs cannot hold up the others.
 *
 * @param limit of slots, by host
 */
export function createHostSlots(limit: (host: string) => number) {
  const used = new Map<string, number>();
  return {
    /** Returns false where the host has no free slot. */
    acquire(host: string): boolean {
      const count = used.get(host) ?? 0;
      if (count >= limit(host)) return false;
      used.set(host, count + 1);
      return true;
    },
    release(host: string): void {
      const count = (used.get(host) ?? 0) - 1;
      if (count > 0) used.set(host, count);
      else used.delete(host);
    },
    /** Hosts without a free slot. */
    full: (): string[] => [...used].filter(([host, count]) => count >= limit(host)).map(([host]) => host),
  };
}
