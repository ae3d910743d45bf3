import { AppError } from '../../../schemas/errors.ts';
import { isPostgresUnavailable } from '../../postgres/client.ts';

/** What a person is told of an error: a sentence where it is his or a store's, the stack where it is a bug. */
export function sentenceOf(error: unknown): string {
  if (error instanceof AppError) return withCause(error);
  if (isPostgresUnavailable(error)) return `PostgreSQL did not answer: ${reasonOf(error)}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** One line: why something did not work this time. */
export function reasonOf(error: unknown): string {
  if (error instanceof AppError) return withCause(error);
  if (!(error instanceof Error)) return String(error);
  // An attempt at several addresses has its reasons inside.
  const code = 'code' in error ? String(error.code) : error.name;
  return error.message === '' ? code : error.message;
}

function withCause({ message, cause, retryable }: AppError): string {
  return retryable && cause instanceof Error ? `${message}: ${reasonOf(cause)}` : message;
}
