/**
 * Errors answer two questions: which one it is (a stable code), and whether trying again can help.
 * Nothing is ever classified by the text of a message.
 */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly retryable: boolean;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(
    code: ErrorCode,
    message: string,
    options: { retryable?: boolean; cause?: unknown; details?: Readonly<Record<string, unknown>> } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'AppError';
    this.code = code;
    this.retryable = options.retryable ?? false;
    this.details = options.details ?? {};
  }
}

/** Every code, with what an operator makes of it. */
export const errorCodes = {
  CONFIG_INVALID: 'a setting is missing or wrong; the message names all of them',
  NODE_UNREACHABLE: 'the Starknet node did not answer (time-out, connection, 429, 5xx)',
  NODE_ANSWER_INVALID: 'the node answered something that is not the specification',
  NODE_ERROR: 'the node answered with a JSON-RPC error',
  FEED_UNREACHABLE: 'a price feed or token list did not answer (time-out, connection, 429, 5xx)',
  FEED_ANSWER_INVALID: 'a price feed or token list answered something that is not its interface',
  BLOCK_INCOMPLETE: 'a block body does not hold what its header counts',
  NODE_INCONSISTENT: 'the node answered from two views of the chain, or from one that is behind; asked again',
  CHAIN_MISMATCH: 'the node serves another chain than the one that was indexed',
  REORG_BELOW_L1: 'the node contradicts what it had accepted on L1; the chunk is stopped',
  LEASE_LOST: 'another writer has taken this chunk',
  CHECKPOINT_CONFLICT: 'another process moved this checkpoint',
  CHECKPOINT_OUTSIDE_LOG: 'a checkpoint points outside the topic, or into another topic of that name',
  TOPIC_MISMATCH: 'a topic exists with other partitions than the registry says',
  MESSAGE_INVALID: 'a message could not be parsed; its partition is halted',
  BUILD_RETIRED: 'another build of a projection took the place of the one that was being written',
  LOG_BEGINNING_GONE: 'the beginning of a topic is gone, so nothing can be rebuilt from it',
  SHAPE_CHANGED: 'a table.sql changed without a new version',
  VERSION_MISMATCH: 'this program writes another version of the projection',
  STORE_UNAVAILABLE: 'Kafka, ClickHouse, Postgres or Redis did not answer',
  QUERY_TIMEOUT: 'a ClickHouse query did not finish in the time of its request',
  COMMAND_TIMEOUT: 'a command was appended but its outcome is not known yet',
  SECRET_UNREADABLE: 'a sealed value was sealed under another SECRET_KEY, or changed',
  READ_MODEL_NOT_BUILT: 'no build of a projection is served yet; `project` or `tds rebuild` builds it',
  NOT_FOUND: 'what was named does not exist',
  CONFLICT: 'the state does not allow it',
  INVALID: 'the input is wrong',
} as const;

export type ErrorCode = keyof typeof errorCodes;

/** True for an `AppError` that says so, and for nothing else: unknown errors are bugs. */
export function isRetryable(error: unknown): boolean {
  return error instanceof AppError && error.retryable;
}
