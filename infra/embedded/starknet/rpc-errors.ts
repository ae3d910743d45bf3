/** An answer of JSON-RPC's `error` kind. */
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
    return {
      code: this.code,
      message: this.message,
      ...(this.data === undefined ? {} : { data: this.data }),
    };
  }
}

export const rpcErrors = {
  contractNotFound: () => new RpcError(20, 'Contract not found'),
  entryPointNotFound: () => new RpcError(21, 'Requested entrypoint does not exist in the contract'),
  blockNotFound: () => new RpcError(24, 'Block not found'),
  classNotFound: () => new RpcError(28, 'Class hash not found'),
  transactionNotFound: () => new RpcError(29, 'Transaction hash not found'),
  pageTooBig: () => new RpcError(31, 'Requested page size is too big'),
  noBlocks: () => new RpcError(32, 'There are no blocks'),
  badToken: () => new RpcError(33, 'The supplied continuation token is invalid or unknown'),
  tooManyKeys: () => new RpcError(34, 'Too many keys provided in a filter'),
  contractError: (data: unknown) => new RpcError(40, 'Contract error', data),
  invalidRequest: () => new RpcError(-32600, 'Invalid request'),
  methodNotFound: () => new RpcError(-32601, 'Method not found'),
  invalidParams: (reason: string) => new RpcError(-32602, 'Invalid params', { reason }),
  parseError: () => new RpcError(-32700, 'Parse error'),
};
