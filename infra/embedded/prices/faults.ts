import { z } from 'zod';

/** Something that goes wrong on purpose; see each kind for what else it takes. */
export const feedFaultSchema = z.object({
  kind: z.enum([
    'latency', // answers after `ms`
    'http429', // with Retry-After: `retryAfter` seconds
    'http500',
    'hang', // never answers
    'not-json', // an HTML page with status 200
    'truncated', // half of the JSON
    'garbage-price', // `value` in the place of the price; default: a text
    'other-address', // the price stands under the address of another token
    'factor', // the price times `factor`; default: 1,000
    'stale', // the price of `ms` ago; default: two days
    'low-confidence',
    'missing', // as if the token were not known
    'stuck', // the price and the time of when the fault was set
  ]),
  /** Default: all; the first part of the path: prices, chart, v1. */
  paths: z.array(z.string()).readonly().optional(),
  /** Addresses; default: all. */
  tokens: z.array(z.string()).readonly().optional(),
  /** How many calls it strikes; default: all until it is cleared. */
  times: z.int().min(1).optional(),
  ms: z.int().min(0).optional(),
  retryAfter: z.int().min(0).optional(),
  factor: z.number().positive().optional(),
  value: z.unknown().optional(),
});
export type FeedFault = z.infer<typeof feedFaultSchema>;

export interface Struck {
  readonly fault: FeedFault;
  /** Unix milliseconds. */
  readonly setAt: number;
}

export interface FeedFaults {
  add(fault: FeedFault): void;
  clear(): void;
  list(): readonly { readonly fault: FeedFault; readonly struck: number }[];
  /** The faults that strike a call; each is counted. */
  strike(path: string): readonly Struck[];
}

export function createFeedFaults(now: () => number): FeedFaults {
  let active: { fault: FeedFault; setAt: number; struck: number }[] = [];
  return {
    add: (fault) => void active.push({ fault, setAt: now(), struck: 0 }),
    clear: () => {
      active = [];
    },
    list: () => active.map(({ fault, struck }) => ({ fault, struck })),
    strike: (path) =>
      active.filter((one) => {
        const { times = Infinity, paths } = one.fault;
        if (one.struck >= times || !(paths?.includes(path) ?? true)) return false;
        one.struck += 1;
        return true;
      }),
  };
}

/** The fault of this kind that strikes a token, if one does. */
export function struckToken(
  strikes: readonly Struck[],
  kind: FeedFault['kind'],
  address: bigint,
): Struck | undefined {
  return strikes.find(
    ({ fault }) => fault.kind === kind && (fault.tokens?.some((one) => BigInt(one) === address) ?? true),
  );
}
