import { isPostgresUnavailable } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';

/** Messages by field; those about the whole input are under `non_field_errors`. */
export type FieldErrors = Readonly<Record<string, readonly string[]>>;

/** An intended error answer: thrown anywhere below the outermost middleware, which sends it. */
export class HttpError extends Error {
  readonly status: number;
  readonly code: string;
  readonly errors: FieldErrors | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** Fields of the body besides those that every error has. */
  readonly extra: Readonly<Record<string, unknown>>;

  constructor(
    status: number,
    code: string,
    detail: string,
    options: {
      errors?: FieldErrors;
      headers?: Readonly<Record<string, string>>;
      extra?: Readonly<Record<string, unknown>>;
      cause?: unknown;
    } = {},
  ) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'HttpError';
    this.status = status;
    this.code = code;
    this.errors = options.errors;
    this.headers = options.headers ?? {};
    this.extra = options.extra ?? {};
  }
}

export const notFound = (detail = 'Not found.'): HttpError => new HttpError(404, 'not_found', detail);

/** What was looked up. Throws 404 where it does not exist. */
export function orNotFound<T>(found: T | null | undefined): T {
  if (found == null) throw notFound();
  return found;
}

export const invalidPage = (): HttpError => new HttpError(404, 'not_found', 'Invalid page.');

/** 400 whose detail joins the first message of each field. */
export function invalidInput(errors: FieldErrors, extra: Readonly<Record<string, unknown>> = {}): HttpError {
  const messages = Object.entries(errors).map(([field, texts]) =>
    field === 'non_field_errors' ? (texts[0] ?? '') : `${field}: ${texts[0] ?? ''}`,
  );
  return new HttpError(400, 'invalid', messages.join(' '), { errors, extra });
}

/** Throws 400 where a query or a body has one of these parameters. */
export function refuseParameters(
  query: Readonly<Record<string, unknown>>,
  names: readonly string[],
  reason: string,
): void {
  const given = names.filter((name) => query[name] !== undefined);
  if (given.length > 0) throw invalidInput(Object.fromEntries(given.map((name) => [name, [reason]])));
}

const challenges = { key: 'ApiKey', session: 'Bearer' } as const;

export function unauthenticated(scheme: keyof typeof challenges, detail?: string): HttpError {
  return new HttpError(
    401,
    detail === undefined ? 'not_authenticated' : 'authentication_failed',
    detail ?? 'Authentication credentials were not provided.',
    { headers: { 'WWW-Authenticate': challenges[scheme] } },
  );
}

export function permissionDenied(detail: string): HttpError {
  return new HttpError(403, 'permission_denied', detail);
}

/** 429 with the wording of Django REST framework, as the contract requires. */
export function throttled(seconds: number, headers: Readonly<Record<string, string>> = {}): HttpError {
  const wait = Math.max(1, Math.ceil(seconds));
  const unit = wait === 1 ? 'second' : 'seconds';
  return new HttpError(429, 'throttled', `Request was throttled. Expected available in ${wait} ${unit}.`, {
    headers: { 'Retry-After': String(wait), ...headers },
  });
}

export function unavailable(code: string, detail: string, retryAfterSeconds: number): HttpError {
  return new HttpError(503, code, detail, { headers: { 'Retry-After': String(retryAfterSeconds) } });
}

/** 503 where the index has not reached a block that the client asks for. */
export const behind = (detail: string): HttpError => unavailable('behind', detail, 1);

/** The answer to any error. Only an `HttpError` shows its message; others would reveal internals. */
export function toHttpError(error: unknown): HttpError {
  if (error instanceof HttpError) return error;
  if (error instanceof AppError) {
    if (error.code === 'COMMAND_TIMEOUT') {
      return new HttpError(503, 'command_timeout', error.message, {
        headers: { 'Retry-After': '2' },
        cause: error,
      });
    }
    if (error.retryable || error.code === 'READ_MODEL_NOT_BUILT') return storeUnavailable(error);
  }
  if (isPostgresUnavailable(error)) return storeUnavailable(error);
  return new HttpError(500, 'error', 'Server Error (500)', { cause: error });
}

function storeUnavailable(cause: unknown): HttpError {
  return new HttpError(503, 'unavailable', 'The service is temporarily unavailable.', {
    headers: { 'Retry-After': '2' },
    cause,
  });
}
