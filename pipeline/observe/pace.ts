/** Milliseconds for which the event loop has worked and waited: `performance.eventLoopUtilization`. */
interface Utilization {
  readonly active: number;
  readonly idle: number;
}

export interface Pace {
  /** Milliseconds until more work may begin; 0: now. */
  restMs(): number;
  /** Called when work begins. */
  begin(): void;
}

/**
 * Lets work begin only once the process was busy for no more than a share of the time since work last began, but not later than
 * `mostMs` after that. Work that waits for others, as downloads do, is not slowed down.
 *
 * @param share above 0, at most 1
 */
export function createPace(
  { share, mostMs }: { readonly share: number; readonly mostMs: number },
  utilization: () => Utilization = () => performance.eventLoopUtilization(),
): Pace {
  let last: Utilization | null = null;
  return {
    restMs() {
      if (last === null) return 0;
      const { active, idle } = utilization();
      const busy = active - last.active;
      const elapsed = busy + idle - last.idle;
      return Math.max(0, Math.min(busy / share, mostMs) - elapsed);
    },
    begin() {
      last = utilization();
    },
  };
}
