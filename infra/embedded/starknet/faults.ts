import { z } from 'zod';

import { RpcError } from './rpc-errors.ts';

/** Something that goes wrong on purpose; see `faultSchema` for what each kind takes. */
export const faultSchema = z.object({
  kind: z.enum([
    'latency', // answers after `ms`
    'http429', // with Retry-After: `retryAfter` seconds
    'http503',
    'hang', // never answers
    'truncated', // half of the JSON
    'null-result',
    'missing-events', // one event short, under the full count
    'missing-transactions', // one transaction short, under the full count
    'wrong-parent', // a parent hash of nobody
    'two-forks', // every other call is answered from `fork` (default: the parent of the fork in force)
    'error', // a JSON-RPC error: `code`, `message`, `data`
  ]),
  /** Default: all. */
  methods: z.array(z.string()).readonly().optional(),
  /** Only calls about a block in this range. */
  heights: z.object({ from: z.int(), to: z.int() }).optional(),
  /** How many calls it strikes; default: all until it is cleared. */
  times: z.int().min(1).optional(),
  ms: z.int().min(0).optional(),
  retryAfter: z.int().min(0).optional(),
  fork: z.int().min(0).optional(),
  code: z.int().optional(),
  message: z.string().optional(),
  data: z.unknown().optional(),
});
export type Fault = z.infer<typeof faultSchema>;

/** A fault that struck a call, and how often it had before. */
export type Strike = { fault: Fault; before: number };

export type Faults = {
  add(fault: Fault): void;
  clear(): void;
  list(): { fault: Fault; struck: number }[];
  /** The faults that strike this call; each is counted. */
  strike(method: string, height: () => number | null): Strike[];
};

export function createFaults(): Faults {
  let active: { fault: Fault; struck: number }[] = [];
  return {
    add(fault) {
      active.push({ fault, struck: 0 });
    },
    clear() {
      active = [];
    },
    list: () => active.map((one) => ({ ...one })),
    strike(method, height) {
      const strikes: Strike[] = [];
      for (const one of active) {
        const { fault } = one;
        if (fault.times !== undefined && one.struck >= fault.times) continue;
        if (fault.methods !== undefined && !fault.methods.includes(method)) continue;
        if (fault.heights !== undefined) {
          const about = height();
          if (about === null || about < fault.heights.from || about > fault.heights.to) continue;
        }
        strikes.push({ fault, before: one.struck });
        one.struck++;
      }
      return strikes;
    },
  };
}

/** The error an `error` fault answers with; null when none struck. */
export function errorOf(strikes: readonly Strike[]): RpcError | null {
  const found = strikes.find(({ fault }) => fault.kind === 'error')?.fault;
  return found === undefined
    ? null
    : new RpcError(found.code ?? -32603, found.message ?? 'Internal error', found.data);
}

/** Spoils a result the way the strikes say. Results are fresh objects; what they share with the chain is not touched. */
export function spoil(result: unknown, strikes: readonly Strike[]): unknown {
  if (strikes.length === 0) return result;
  if (strikes.some(({ fault }) => fault.kind === 'null-result')) return null;
  const block = blockLike.safeParse(result);
  if (!block.success) return result;
  let spoilt = block.data;
  for (const { fault } of strikes) {
    const { transactions } = spoilt;
    if (fault.kind === 'wrong-parent') spoilt = { ...spoilt, parent_hash: '0xbad' };
    if (fault.kind === 'missing-transactions')
      spoilt = { ...spoilt, transactions: transactions.slice(0, -1) };
    if (fault.kind === 'missing-events') spoilt = { ...spoilt, transactions: withoutOneEvent(transactions) };
  }
  return spoilt;
}

const blockLike = z.looseObject({ transactions: z.array(z.unknown()) });

const withEvents = z.looseObject({ receipt: z.looseObject({ events: z.array(z.unknown()).min(1) }) });

function withoutOneEvent(transactions: readonly unknown[]): unknown[] {
  const last = transactions.findLastIndex((tx) => withEvents.safeParse(tx).success);
  return transactions.map((tx, i) => {
    if (i !== last) return tx;
    const { receipt, ...rest } = withEvents.parse(tx);
    return { ...rest, receipt: { ...receipt, events: receipt.events.slice(0, -1) } };
  });
}
