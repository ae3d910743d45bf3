import { z } from 'zod';

import { AppError } from '../../schemas/errors.ts';

/** JSON-RPC error codes that the service distinguishes (Starknet's specification, and JSON-RPC's own). */
export const rpcCodes = {
  contractNotFound: 20,
  /** Before specification 0.8: invalid selector. */
  entrypointNotFound: 21,
  invalidCallData: 22,
  blockNotFound: 24,
  classNotFound: 28,
  noBlocks: 32,
  /** The call reverted; some nodes return it for a missing entry point. */
  contractError: 40,
  executionError: 41,
  /** Pathfinder's refusals of a batch, and of one with too many calls. */
  invalidRequest: -32600,
  parseError: -32700,
  /** Refusals of a batch by nodes on jsonrpsee, such as Madara. */
  batchesNotSupported: -32005,
  batchTooLarge: -32010,
  batchAnswerTooLarge: -32011,
  /** dRPC's refusal of a batch with more calls than the plan allows, three on the free one. */
  batchTooLargeForPlan: 31,
  /** The rate limit of a provider that states it with HTTP 200. */
  tooManyRequests: 429,
  internalError: -32603,
  /** dRPC's own: none of its nodes can take the call now, the call was cancelled, and an internal error. */
  noUpstream: 12,
  upstreamCancelled: 14,
  upstreamFailed: 19,
  /** Statuses of HTTP as codes, with HTTP 200: Madara's internal error, and failures between a gateway and its nodes. */
  internalServerError: 500,
  badGateway: 502,
  serviceUnavailable: 503,
  gatewayTimeout: 504,
} as const;

/** Characters of a message of the node that an error keeps. */
const MAX_MESSAGE = 500;

/** What nodes add to "Internal error" and "Invalid params": a text, or one in an object; empty where there is none. */
const reason = z
  .union([
    z.string(),
    z.object({ reason: z.string() }).transform((data) => data.reason),
    z.object({ error: z.string() }).transform((data) => data.error),
  ])
  .catch('');

/** A JSON-RPC error that the node returned. */
export class RpcError extends AppError {
  readonly rpcCode: number;
  readonly data: unknown;

  constructor(method: string, rpcCode: number, message: string, data: unknown) {
    const text = [message, reason.parse(data)].filter((part) => part !== '').join(': ');
    super('NODE_ERROR', `${method}: ${text.slice(0, MAX_MESSAGE)} (${rpcCode})`, {
      retryable: isServerFault(rpcCode),
      details: { method, rpcCode },
    });
    this.rpcCode = rpcCode;
    this.data = data;
  }
}

/** Internal errors, a rate limit, and what fails between a provider and its nodes: never an answer about the state of a block. */
export const SERVER_FAULTS: readonly number[] = [
  rpcCodes.internalError,
  rpcCodes.tooManyRequests,
  rpcCodes.upstreamCancelled,
  rpcCodes.upstreamFailed,
  rpcCodes.internalServerError,
  rpcCodes.badGateway,
  rpcCodes.serviceUnavailable,
  rpcCodes.gatewayTimeout,
];

/** Also JSON-RPC's server range, and no node of a provider that can take the call: the call may be valid. */
function isServerFault(rpcCode: number): boolean {
  return (
    SERVER_FAULTS.includes(rpcCode) ||
    rpcCode === rpcCodes.noUpstream ||
    (rpcCode <= -32000 && rpcCode >= -32099)
  );
}

export function isRpcError(error: unknown, ...codes: readonly number[]): error is RpcError {
  return error instanceof RpcError && codes.includes(error.rpcCode);
}

const CONTRACT_ERRORS = [
  rpcCodes.contractNotFound,
  rpcCodes.entrypointNotFound,
  rpcCodes.invalidCallData,
  rpcCodes.classNotFound,
  rpcCodes.contractError,
  rpcCodes.executionError,
];

/** True where the chain answered that a contract or entry point does not exist, or that a call fails; others are the node's errors. */
export function isContractError(error: unknown): error is RpcError {
  return isRpcError(error, ...CONTRACT_ERRORS);
}

/** The answer violates the specification. Retryable, because a load balancer may pick another node. */
export function invalidAnswer(message: string): AppError {
  return new AppError('NODE_ANSWER_INVALID', message.slice(0, MAX_MESSAGE), { retryable: true });
}
