import { z } from 'zod';

import { rpcErrors } from '../../../infra/embedded/starknet/protocol.ts';
import type { RunCall } from '../../../infra/embedded/starknet/rpc.ts';

export type SpecVersion = '0.8' | '0.9' | '0.10';

/** Fields that 0.10 added to the header of a block. */
export const newInHeader = [
  'transaction_commitment',
  'event_commitment',
  'receipt_commitment',
  'state_diff_commitment',
  'event_count',
  'transaction_count',
  'state_diff_length',
] as const;

const block = z.looseObject({ transactions: z.array(z.unknown()) });
const eventPage = z.looseObject({ events: z.array(z.record(z.string(), z.unknown())) });
const transaction = z.looseObject({ receipt: z.record(z.string(), z.unknown()) });

const without = (value: object, fields: readonly string[]): Record<string, unknown> =>
  Object.fromEntries(Object.entries(value).filter(([field]) => !fields.includes(field)));

/** Turns a node that speaks JSON-RPC 0.10 into one of an older version. */
export function speakSpec(spec: SpecVersion, run: RunCall): RunCall {
  if (spec === '0.10') return run;
  return async (call) => {
    if (call.method === 'starknet_specVersion') return spec === '0.8' ? '0.8.1' : '0.9.0';
    const result = await run({ ...call, params: spec === '0.8' ? oldTags(call.params) : call.params });
    const page = eventPage.safeParse(result);
    if (page.success) {
      const events = page.data.events.map((event) => without(event, ['transaction_index', 'event_index']));
      return { ...page.data, events };
    }
    const found = block.safeParse(result);
    if (!found.success) return result;
    const old = without(found.data, newInHeader);
    if (spec !== '0.8' || old['status'] !== 'PRE_CONFIRMED') return old;
    const head = await run({ ...call, method: 'starknet_blockHashAndNumber', params: [] });
    const { block_hash: parent_hash } = z.object({ block_hash: z.string() }).parse(head);
    const transactions = found.data.transactions.map(asAccepted);
    return { ...without(old, ['status', 'block_number']), parent_hash, transactions };
  };
}

/** 0.8 has the tag `pending` in place of `pre_confirmed`, and no `l1_accepted`. */
function oldTags(params: unknown): unknown {
  const text = JSON.stringify(params ?? []);
  const unknown = /"(pre_confirmed|l1_accepted)"/.exec(text)?.[1];
  if (unknown !== undefined) throw rpcErrors.invalidParams(`unknown block tag ${unknown}`);
  return JSON.parse(text.replaceAll('"pending"', '"pre_confirmed"'));
}

function asAccepted(value: unknown): unknown {
  const found = transaction.safeParse(value);
  if (!found.success) return value;
  return { ...found.data, receipt: { ...found.data.receipt, finality_status: 'ACCEPTED_ON_L2' } };
}
