/** Counts the kinds of events in a run, so that tests can assert their coverage. */
export type Count = (kind: string, times?: number) => void;

export type Coverage = Map<string, number>;

export function counter(coverage: Coverage): Count {
  return (kind, times = 1) => void coverage.set(kind, (coverage.get(kind) ?? 0) + times);
}

export function addCoverage(sum: Coverage, more: Coverage): void {
  for (const [kind, times] of more) sum.set(kind, (sum.get(kind) ?? 0) + times);
}
