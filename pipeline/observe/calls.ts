import PQueue from 'p-queue';

import { isRpcError, rpcCodes } from '../node/errors.ts';
import type { RpcError } from '../node/errors.ts';
import type { Node } from '../node/types.ts';

/** Contract or entry point not found, invalid call data, contract error, failed validation. */
const REFUSALS = [rpcCodes.contractNotFound, rpcCodes.entrypointNotFound, 22, rpcCodes.contractError, 41];

/** True where the chain answered that the call fails; every other error is the node's. */
export function isCallRefused(error: unknown): error is RpcError {
  return isRpcError(error, ...REFUSALS);
}

/** Limits calls per second, and calls in flight where `concurrency` is given. */
export function paceCalls(
  node: Pick<Node, 'call'>,
  { callsPerSecond, concurrency }: { readonly callsPerSecond: number; readonly concurrency?: number },
): Pick<Node, 'call'> {
  const queue = new PQueue({
    interval: 1000,
    intervalCap: callsPerSecond,
    ...(concurrency === undefined ? {} : { concurrency }),
  });
  return {
    call: (request, at, options = {}) =>
      queue.add(
        () => node.call(request, at, options),
        options.signal === undefined ? {} : { signal: options.signal },
      ),
  };
}
