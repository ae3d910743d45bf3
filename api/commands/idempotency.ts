import { randomUUID } from 'node:crypto';

import type { CommandOutcome } from '../../schemas/command-outcome.ts';
import { idempotentCommandId, requestHash } from '../../infra/commands/bus.ts';
import { HttpError, invalidInput, notFound } from '../http/errors.ts';
import type { RequestInfo } from '../http/route.ts';

/** What a request asks, by which its repeats are known. */
export interface CommandIdentity {
  readonly id: string;
  /** Hash of the input; undefined without an `Idempotency-Key`. */
  readonly requestHash: string | undefined;
}

/** With an `Idempotency-Key` header the id follows from caller, route and that key; without one it is random. */
export function identifyCommand(
  secretKey: Buffer,
  actor: string,
  request: RequestInfo,
  input: unknown,
): CommandIdentity {
  const key = request.header('Idempotency-Key');
  if (key === '') return { id: randomUUID(), requestHash: undefined };
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw invalidInput({ 'Idempotency-Key': ['Use 1 to 255 printable ASCII characters.'] });
  }
  const route = `${request.method} ${request.path}`;
  return { id: idempotentCommandId(actor, route, key), requestHash: requestHash(secretKey, input) };
}

/** The result of an accepted command; throws what a refusal, or a key used for two requests, is answered with. */
export function acceptedResult(
  { requestHash: expected }: CommandIdentity,
  outcome: CommandOutcome,
): Readonly<Record<string, unknown>> {
  if (expected !== undefined && outcome.request_hash !== expected) {
    throw new HttpError(
      422,
      'idempotency_key_reused',
      'This Idempotency-Key was used with another request body.',
    );
  }
  if (outcome.accepted) return outcome.result;
  const { code, detail } = outcome.result;
  throw code === 'NOT_FOUND' ? notFound(detail) : new HttpError(409, 'conflict', detail);
}
