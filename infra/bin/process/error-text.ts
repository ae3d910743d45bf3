import { AppError } from '../../../schemas/errors.ts';
import { isClickHouseMissingPrivilege, isClickHouseRejection } from '../../clickhouse/client.ts';
import { errorCode } from '../../error-code.ts';
import { isPostgresUnavailable, isPrivilegeMissing } from '../../postgres/client.ts';

/** SQLSTATEs: invalid password, invalid authorization, database does not exist. */
const REJECTED_CONNECTION = new Set(['28P01', '28000', '3D000']);

/** The text of an error for a person: a message for expected errors, the stack for a bug. */
export function errorText(error: unknown): string {
  if (error instanceof AppError) return withCause(error);
  if (isPostgresUnavailable(error)) return `PostgreSQL did not answer: ${shortReason(error)}`;
  if (REJECTED_CONNECTION.has(errorCode(error) ?? '')) return rejectionText('PostgreSQL', error);
  if (isClickHouseRejection(error)) return rejectionText('ClickHouse', error);
  if (isPrivilegeMissing(error)) return privilegeText('PostgreSQL', error);
  if (isClickHouseMissingPrivilege(error)) return privilegeText('ClickHouse', error);
  if (!(error instanceof Error)) return String(error);
  // The message of a system call names the call and the path.
  return 'syscall' in error ? error.message : (error.stack ?? error.message);
}

function rejectionText(store: string, error: unknown): string {
  return `${store} rejected the connection: ${shortReason(error)}; check the user, password and database in its URL`;
}

function privilegeText(store: string, error: unknown): string {
  return `The user of ${store} lacks a privilege: ${shortReason(error)}`;
}

/** The cause of a failure in one line. */
export function shortReason(error: unknown): string {
  if (error instanceof AppError) return withCause(error);
  if (!(error instanceof Error)) return String(error);
  // An AggregateError of several addresses has an empty message.
  const code = 'code' in error ? String(error.code) : error.name;
  return error.message === '' ? code : error.message;
}

function withCause({ message, cause, retryable }: AppError): string {
  return retryable && cause instanceof Error ? `${message}: ${shortReason(cause)}` : message;
}
