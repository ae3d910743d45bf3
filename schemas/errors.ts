/** An expected failure: a stable code, and whether a retry can help. Errors are never classified by their message. */
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

/** Every code, with its meaning for operators. */
export const errorCodes = {
  CONFIG_INVALID: 'a setting is missing or invalid; the message lists every such setting',
  NODE_UNREACHABLE: 'the Starknet node did not answer (time-out, connection, 429, 5xx)',
  NODE_ANSWER_INVALID: 'an answer of the node violates the Starknet JSON-RPC specification',
  NODE_ERROR: 'the node answered with a JSON-RPC error',
  FEED_UNREACHABLE: 'a price feed or token list did not answer (time-out, connection, 429, 5xx)',
  FEED_ANSWER_INVALID: 'an answer of a price feed or token list has an unexpected shape',
  BLOCK_INCOMPLETE: 'a block body does not match the counts in its header',
  BLOCK_MISMATCHED:
    'a block does not match the commitments in its header, or the header does not have its hash; refused and fetched again',
  BLOCK_UNVERIFIABLE:
    'the node does not return the data to compare a block with, as it did for other blocks; refused and fetched again',
  NODE_INCONSISTENT: 'two answers of the node contradict each other, or the node is behind; retried',
  CHAIN_MISMATCH: 'the node serves another chain than the indexed one',
  REORG_BELOW_L1: 'the node replaced a block that it had reported as accepted on L1; the chunk is stopped',
  RECORDS_INCOMPLETE: 'recorded blocks of a chunk are missing in PostgreSQL; the chunk is stopped',
  LEASE_LOST: 'another writer holds the lease of this chunk',
  CHECKPOINT_CONFLICT: 'another process moved this checkpoint',
  CHECKPOINT_OUTSIDE_LOG:
    'a checkpoint is outside the offsets of its topic, or the topic was deleted and created again',
  TOPIC_MISMATCH: 'a topic exists with another number of partitions than declared',
  MESSAGE_TOO_LARGE: 'Kafka does not accept a message of this size; raise max.message.bytes of its topic',
  MESSAGE_INVALID: 'a message could not be parsed; its partition is halted',
  BUILD_RETIRED: 'the build being written was replaced by another build of the projection',
  LOG_BEGINNING_GONE: 'the first messages of a topic were deleted, so nothing can be rebuilt from it',
  SHAPE_CHANGED: 'a table.sql changed without a new version',
  VERSION_MISMATCH:
    'this program writes another version of the projection than the served one, or cannot read the snapshot of it',
  STORE_UNAVAILABLE: 'Kafka, ClickHouse, Postgres or Redis did not answer',
  QUERY_TIMEOUT: 'a ClickHouse query did not finish in the time of its request',
  COMMAND_TIMEOUT: 'a command was appended to the log, but its outcome is not known yet',
  SECRET_UNREADABLE: 'a value was sealed under an unknown SECRET_KEY, or altered',
  READ_MODEL_NOT_BUILT: 'no build of a projection is served yet; `project` or `tds rebuild` builds it',
  NOT_FOUND: 'the requested object does not exist',
  CONFLICT: 'the current state does not allow the operation',
  INVALID: 'the input is invalid',
} as const;

export type ErrorCode = keyof typeof errorCodes;

/** True only for an `AppError` marked as retryable: unknown errors are bugs. */
export function isRetryable(error: unknown): boolean {
  return error instanceof AppError && error.retryable;
}

/** The message of what was thrown, which need not be an error. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
