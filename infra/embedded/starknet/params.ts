import { z } from 'zod';

import { rpcErrors } from './rpc-errors.ts';

export type SpecVersion = '0.8' | '0.9' | '0.10';

const feltText = z.string().regex(/^0x[0-9a-fA-F]{1,64}$/);
export const felt = feltText.transform((text) => BigInt(text));

const anyTag = z.enum(['latest', 'pending', 'pre_confirmed', 'l1_accepted']);

export const blockId = z.union([
  anyTag,
  z.strictObject({ block_number: z.int().min(0) }),
  z.strictObject({ block_hash: feltText }),
]);
export type BlockId = z.infer<typeof blockId>;

export const eventFilter = z.object({
  from_block: blockId.optional(),
  to_block: blockId.optional(),
  address: z.union([felt, z.array(felt)]).optional(),
  keys: z.array(z.array(felt)).optional(),
  chunk_size: z.int().min(1),
  continuation_token: z.string().optional(),
});
export type EventFilter = z.infer<typeof eventFilter>;

export const functionCall = z.object({
  contract_address: felt,
  entry_point_selector: felt,
  calldata: z.array(felt).optional(),
});

/** Reads parameters given by name or by position, in the order of `names`. */
export function readParams<T>(schema: z.ZodType<T>, names: readonly string[], params: unknown): T {
  const named = Array.isArray(params)
    ? Object.fromEntries(names.flatMap((name, i) => (i < params.length ? [[name, params[i]]] : [])))
    : (params ?? {});
  const parsed = schema.safeParse(named);
  if (parsed.success) return parsed.data;
  throw rpcErrors.invalidParams(z.prettifyError(parsed.error));
}

/** Tags came and went: `l1_accepted` and `pre_confirmed` are of 0.9, `pending` ended with 0.8. */
export function checkTag(id: BlockId, spec: SpecVersion): void {
  const unknown = spec === '0.8' ? ['l1_accepted', 'pre_confirmed'] : ['pending'];
  if (typeof id === 'string' && unknown.includes(id))
    throw rpcErrors.invalidParams(`unknown block tag ${id}`);
}
