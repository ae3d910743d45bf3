import { ClickHouseError } from '@clickhouse/client';

import { AppError } from '../../schemas/errors.ts';
import { isBareError, isNetworkError } from '../network-errors.ts';
import { retry } from '../retry.ts';

/**
 * Runs one request, again while other inserts into its table are under way. An error of the network, a request that took too
 * long, and a response that is not ClickHouse's become `STORE_UNAVAILABLE`.
 */
export async function attempt<T>(
  timeoutMs: number,
  caller: AbortSignal | null,
  request: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const timer = setTimeout(() => deadline.abort(), timeoutMs);
  const signal = caller === null ? deadline.signal : AbortSignal.any([caller, deadline.signal]);
  try {
    return await retry(async () => await request(signal), {
      isRetryable: (error) => error instanceof ClickHouseError && MOMENTARY_CODES.has(error.code),
      baseMs: 20,
      maxMs: 500,
      deadlineMs: timeoutMs,
      signal,
    });
  } catch (error) {
    if (deadline.signal.aborted) throw unavailable(`ClickHouse did not answer within ${timeoutMs} ms`, error);
    if (isNetworkError(error)) throw unavailable('ClickHouse did not answer', error);
    if (caller?.aborted !== true && isBareError(error)) {
      throw unavailable('The response is not from ClickHouse, or is cut off', error);
    }
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

export function unavailable(message: string, cause: unknown): AppError {
  return new AppError('STORE_UNAVAILABLE', message, { retryable: true, cause, details: { store: STORE } });
}

const STORE = 'ClickHouse';

/** Exceptions that pass in milliseconds while everything works: quorum inserts into a table exclude each other. */
const MOMENTARY_CODES: ReadonlySet<string> = new Set([
  '286', // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
  '289', // REPLICA_IS_NOT_IN_QUORUM
]);

/** Exceptions of ClickHouse that pass without a change of the query. */
const RETRYABLE_CODES: ReadonlySet<string> = new Set([
  ...MOMENTARY_CODES,
  '75', // CANNOT_WRITE_TO_FILE_DESCRIPTOR
  '159', // TIMEOUT_EXCEEDED
  '164', // READONLY: the replica is not active in Keeper yet
  '201', // QUOTA_EXCEEDED: of the user, until its interval ends
  '202', // TOO_MANY_SIMULTANEOUS_QUERIES
  '203', // NO_FREE_CONNECTION
  '204', // CANNOT_FSYNC
  '209', // SOCKET_TIMEOUT
  '210', // NETWORK_ERROR
  '216', // QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING: a proxy sent a request again whose connection broke
  '225', // NO_ZOOKEEPER
  '236', // ABORTED: the server is stopping
  '241', // MEMORY_LIMIT_EXCEEDED
  '242', // TABLE_IS_READ_ONLY: the replica has lost Keeper
  '243', // NOT_ENOUGH_SPACE
  '244', // UNEXPECTED_ZOOKEEPER_ERROR
  '252', // TOO_MANY_PARTS
  '279', // ALL_CONNECTION_TRIES_FAILED
  '285', // TOO_FEW_LIVE_REPLICAS
  '319', // UNKNOWN_STATUS_OF_INSERT
  '341', // UNFINISHED: a mutation, on some replica
  '394', // QUERY_WAS_CANCELLED: a server that stops kills what runs
  '439', // CANNOT_SCHEDULE_TASK
  '473', // DEADLOCK_AVOIDED: a lock of the table was not granted in time
  '745', // SERVER_OVERLOADED
  '999', // KEEPER_EXCEPTION
]);

/** True where another attempt can help: no answer, a broken connection, or a server that is overloaded or out of space. */
export function isClickHouseUnavailable(error: unknown): boolean {
  if (error instanceof ClickHouseError) return RETRYABLE_CODES.has(error.code);
  if (error instanceof AppError)
    return error.code === 'STORE_UNAVAILABLE' && error.details['store'] === STORE;
  return isNetworkError(error);
}

/** UNKNOWN_DATABASE, AUTHENTICATION_FAILED */
const REJECTION_CODES: ReadonlySet<string> = new Set(['81', '516']);

/** True where ClickHouse does not accept the user, the password or the database of its URL. */
export function isClickHouseRejection(error: unknown): boolean {
  return error instanceof ClickHouseError && REJECTION_CODES.has(error.code);
}

/** ACCESS_DENIED; the message names the missing grant. */
const ACCESS_DENIED_CODE = '497';

export function isClickHouseMissingPrivilege(error: unknown): boolean {
  return error instanceof ClickHouseError && error.code === ACCESS_DENIED_CODE;
}

/** FUNCTION_THROW_IF_VALUE_IS_NON_ZERO */
const THROW_IF_CODE = '395';

/** Whether a statement ended itself, by its own `throwIf`. */
export function isThrowIf(error: unknown): boolean {
  return error instanceof ClickHouseError && error.code === THROW_IF_CODE;
}
