import { retryAfterMs } from './retry.ts';

/** An answer of the service that is not a success. */
export class ApiError extends Error {
  readonly status: number;
  /** Of the service; `unknown` where the answer is not the service's. */
  readonly code: string;
  readonly requestId: string | null;
  /** The invalid parameters, each with what is wrong. */
  readonly errors: Readonly<Record<string, readonly string[]>>;
  /** With code `reverted_block`: the hash of the block that the chain has at `as_of_block`. */
  readonly canonicalHash: string | null;
  /** All fields of the answer, also those of one route, as `server_version`; empty where it is no JSON object. */
  readonly body: Readonly<Record<string, unknown>>;
  /** From `Retry-After`; null where the answer names no time. */
  readonly retryAfterSeconds: number | null;

  constructor(status: number, body: unknown, headers = new Headers()) {
    const fields = fieldsOf(body);
    const { detail, error, code, request_id: id, errors, canonical_hash: hash } = fields;
    super(text(detail) ?? text(error) ?? `The service answered ${status}`);
    this.name = 'ApiError';
    this.status = status;
    this.code = text(code) ?? 'unknown';
    this.requestId = text(id) ?? null;
    this.errors = fieldsOf(errors) as Record<string, readonly string[]>;
    this.canonicalHash = text(hash) ?? null;
    this.body = fields;
    const waitMs = retryAfterMs(headers);
    this.retryAfterSeconds = waitMs === null ? null : Math.ceil(waitMs / 1000);
  }
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
