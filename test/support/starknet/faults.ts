import type { RequestListener, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

import { z } from 'zod';

import { readBody, send } from '../../../infra/embedded/loopback.ts';
import { answerRequest, failure, parseRequest } from '../../../infra/embedded/starknet/http.ts';
import { heightOf, type Ledger } from '../../../infra/embedded/starknet/ledger.ts';
import { RpcError, blockId } from '../../../infra/embedded/starknet/protocol.ts';
import type { RpcCall, RunCall } from '../../../infra/embedded/starknet/rpc.ts';

/** A fault of the simulated node; the comment of each kind names the other fields it takes. */
export const faultSchema = z.object({
  kind: z.enum([
    'latency', // responds after `ms`
    'http429', // with Retry-After: `retryAfter` seconds
    'http503',
    'hang', // never responds
    'batch-refused', // a batch gets one error: `code`, `message`
    'truncated', // half of the JSON
    'null-result',
    'missing-events', // one event missing, under the full count
    'uncounted-event', // one event missing, and the count lowered
    'changed-event', // another value in one event
    'changed-fee', // another fee of every transaction
    'changed-signature', // of every transaction
    'changed-revert-reason', // of every reverted transaction
    'changed-header', // the fields in `data`
    'swapped-events', // two events of a transaction in the other order
    'missing-transactions', // one transaction missing, under the full count
    'wrong-parent', // a parent hash that no block has
    'two-forks', // every other call is answered from `fork` (default: the parent of the canonical fork)
    'error', // a JSON-RPC error: `code`, `message`, `data`
  ]),
  /** Default: all. */
  methods: z.array(z.string()).readonly().optional(),
  /** Only calls about a block in this range. */
  heights: z.object({ from: z.int(), to: z.int() }).optional(),
  /** Number of calls it applies to; default: all until it is cleared. */
  times: z.int().min(1).optional(),
  ms: z.int().min(0).optional(),
  retryAfter: z.int().min(0).optional(),
  fork: z.int().min(0).optional(),
  code: z.int().optional(),
  message: z.string().optional(),
  data: z.unknown().optional(),
});
export type Fault = z.infer<typeof faultSchema>;

/** A fault that applies to a call, and the number of calls it applied to before. */
type Strike = { fault: Fault; before: number };

export type Faults = {
  add(fault: Fault): void;
  clear(): void;
  list(): { fault: Fault; struck: number }[];
  /** The faults that apply to this call; each is counted. */
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

export type FaultyRpc = {
  faults: Faults;
  ledger: Ledger;
  run: RunCall;
  /** Answers from another fork, for the fault `two-forks`. */
  runOnFork: (fork: number | undefined) => RunCall;
};

/** Serves JSON-RPC with the faults that are set. */
export function createFaultyListener({ faults, ledger, run, runOnFork }: FaultyRpc): RequestListener {
  async function respond(text: string, response: ServerResponse): Promise<void> {
    const request = parseRequest(text);
    const strikes = new Map<RpcCall, Strike[]>();
    for (const call of request?.calls ?? []) {
      if (call !== null)
        strikes.set(
          call,
          faults.strike(call.method, () => heightOfCall(ledger, call)),
        );
    }
    const all = [...strikes.values()].flat();
    const struck = (kind: Fault['kind']) => all.find(({ fault }) => fault.kind === kind)?.fault;

    const slow = struck('latency');
    if (slow !== undefined) await sleep(slow.ms ?? 1000);
    if (struck('hang') !== undefined) return;
    const busy = struck('http429');
    if (busy !== undefined) return send(response, 429, '{}', { 'retry-after': String(busy.retryAfter ?? 1) });
    if (struck('http503') !== undefined)
      return send(response, 503, 'upstream connect error', { 'content-type': 'text/plain' });

    const refused = request?.isBatch === true ? struck('batch-refused') : undefined;
    if (refused !== undefined)
      return send(response, 200, failure(null, errorOf(refused, -32600, 'batch requests are not supported')));

    const body = await answerRequest(request, (call) => runWithFaults(call, strikes.get(call) ?? []));
    if (struck('truncated') === undefined) return send(response, 200, body);
    const whole = Buffer.from(body);
    send(response, 200, whole.subarray(0, Math.floor(whole.length / 2)));
  }

  async function runWithFaults(call: RpcCall, strikes: readonly Strike[]): Promise<unknown> {
    const failing = strikes.find(({ fault }) => fault.kind === 'error')?.fault;
    if (failing !== undefined) throw errorOf(failing, -32603, 'Internal error');
    const forked = strikes.find(({ fault, before }) => fault.kind === 'two-forks' && before % 2 === 0);
    const result = await (forked === undefined ? run(call) : runOnFork(forked.fault.fork)(call));
    if (strikes.length === 0) return result;
    return spoil(Buffer.isBuffer(result) ? JSON.parse(result.toString()) : result, strikes);
  }

  return (request, response) => {
    readBody(request)
      .then((text) => respond(text, response))
      .catch(() => response.destroy());
  };
}

function errorOf({ code, message, data }: Fault, defaultCode: number, defaultMessage: string): RpcError {
  return new RpcError(code ?? defaultCode, message ?? defaultMessage, data);
}

/** The height that a call is about; null if it names none. */
function heightOfCall(ledger: Ledger, { params }: RpcCall): number | null {
  const found = z
    .object({ block_id: blockId })
    .safeParse(Array.isArray(params) ? { block_id: params[0] } : params);
  if (!found.success) return null;
  try {
    return heightOf(ledger, found.data.block_id);
  } catch {
    return null;
  }
}

/** A result with the faults applied. What it shares with the chain is not changed. */
function spoil(result: unknown, strikes: readonly Strike[]): unknown {
  if (strikes.some(({ fault }) => fault.kind === 'null-result')) return null;
  const block = blockLike.safeParse(result);
  if (!block.success) return result;
  let spoilt = block.data;
  for (const { fault } of strikes) {
    const { transactions } = spoilt;
    if (fault.kind === 'wrong-parent') spoilt = { ...spoilt, parent_hash: '0xbad' };
    if (fault.kind === 'missing-transactions')
      spoilt = { ...spoilt, transactions: transactions.slice(0, -1) };
    if (fault.kind === 'changed-header') spoilt = { ...spoilt, ...z.looseObject({}).parse(fault.data) };
    const change = transactionEdits[fault.kind];
    if (change !== undefined)
      spoilt = { ...spoilt, transactions: transactions.map((tx) => change(withReceipt.parse(tx))) };
    const edit = eventEdits[fault.kind];
    if (edit !== undefined) spoilt = { ...spoilt, transactions: editEvents(transactions, edit) };
    if (fault.kind === 'uncounted-event') spoilt = { ...spoilt, event_count: (spoilt.event_count ?? 0) - 1 };
  }
  return spoilt;
}

const blockLike = z.looseObject({ transactions: z.array(z.unknown()), event_count: z.int().optional() });
const rawEvent = z.object({ from_address: z.string(), keys: z.array(z.string()), data: z.array(z.string()) });
const withEvents = z.looseObject({ receipt: z.looseObject({ events: z.array(rawEvent).min(1) }) });

const withReceipt = z.looseObject({ transaction: z.looseObject({}), receipt: z.looseObject({}) });

const transactionEdits: Partial<
  Record<Fault['kind'], (transaction: z.infer<typeof withReceipt>) => unknown>
> = {
  'changed-fee': ({ receipt, ...rest }) => ({
    ...rest,
    receipt: { ...receipt, actual_fee: { amount: '0x1234', unit: 'FRI' } },
  }),
  'changed-signature': ({ transaction, ...rest }) => ({
    ...rest,
    transaction: 'signature' in transaction ? { ...transaction, signature: ['0x1', '0x2'] } : transaction,
  }),
  'changed-revert-reason': ({ receipt, ...rest }) => ({
    ...rest,
    receipt: 'revert_reason' in receipt ? { ...receipt, revert_reason: 'out of gas' } : receipt,
  }),
};

type EditEvents = (events: readonly z.infer<typeof rawEvent>[]) => unknown[];

const eventEdits: Partial<Record<Fault['kind'], EditEvents>> = {
  'missing-events': (events) => events.slice(0, -1),
  'uncounted-event': (events) => events.slice(0, -1),
  'changed-event': (events) =>
    events.map((event, i) => (i === 0 ? { ...event, data: [...event.data.slice(0, -1), '0x1234'] } : event)),
  'swapped-events': ([first, second, ...others]) => [second, first, ...others],
};

/** Edits the events of the last transaction that has more than one, or the last that has any. */
function editEvents(transactions: readonly unknown[], edit: EditEvents): unknown[] {
  const sizes = transactions.map((tx) => withEvents.safeParse(tx).data?.receipt.events.length ?? 0);
  const several = sizes.findLastIndex((size) => size > 1);
  const last = several === -1 ? sizes.findLastIndex((size) => size > 0) : several;
  return transactions.map((tx, i) => {
    if (i !== last) return tx;
    const { receipt, ...rest } = withEvents.parse(tx);
    return { ...rest, receipt: { ...receipt, events: edit(receipt.events) } };
  });
}
