import { z } from 'zod';

/** A JSON-RPC error response. */
export class RpcError extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.name = 'RpcError';
    this.code = code;
    this.data = data;
  }

  toJson(): Record<string, unknown> {
    const { code, message, data } = this;
    return data === undefined ? { code, message } : { code, message, data };
  }
}

export const rpcErrors = {
  contractNotFound: () => new RpcError(20, 'Contract not found'),
  entryPointNotFound: () => new RpcError(21, 'Requested entrypoint does not exist in the contract'),
  blockNotFound: () => new RpcError(24, 'Block not found'),
  classNotFound: () => new RpcError(28, 'Class hash not found'),
  transactionNotFound: () => new RpcError(29, 'Transaction hash not found'),
  pageTooBig: () => new RpcError(31, 'Requested page size is too big'),
  badToken: () => new RpcError(33, 'The supplied continuation token is invalid or unknown'),
  tooManyKeys: () => new RpcError(34, 'Too many keys provided in a filter'),
  contractError: (data: unknown) => new RpcError(40, 'Contract error', data),
  badSubscription: () => new RpcError(66, 'Invalid subscription id'),
  invalidRequest: () => new RpcError(-32600, 'Invalid request'),
  methodNotFound: () => new RpcError(-32601, 'Method not found'),
  invalidParams: (reason: string) => new RpcError(-32602, 'Invalid params', { reason }),
  internal: (reason: string) => new RpcError(-32603, 'Internal error', reason),
  parseError: () => new RpcError(-32700, 'Parse error'),
};

const feltText = z.string().regex(/^0x[0-9a-fA-F]{1,64}$/);
export const felt = feltText.transform((text) => BigInt(text));

export const blockId = z.union([
  z.enum(['latest', 'pre_confirmed', 'l1_accepted']),
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

/** Reads parameters given by name or by position, in the order of the schema's fields. */
export function readParams<S extends z.ZodObject>(schema: S, params: unknown): z.infer<S> {
  const named = Array.isArray(params)
    ? Object.fromEntries(Object.keys(schema.shape).map((name, i) => [name, params[i]]))
    : (params ?? {});
  const parsed = schema.safeParse(named);
  if (parsed.success) return parsed.data;
  throw rpcErrors.invalidParams(z.prettifyError(parsed.error));
}
