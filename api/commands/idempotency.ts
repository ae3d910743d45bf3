import type { CommandOutcome } from '../../schemas/command-outcome.ts';
import { idempotentCommandId, requestHash } from '../../infra/commands/bus.ts';
import { HttpError, invalidInput, notFound } from '../http/errors.ts';
import type { RequestInfo } from '../http/route.ts';
import type { CommandType } from '../../schemas/messages/commands.ts';
import type { RequestCommands } from './command-queue.ts';

/** Identifies a request and its repeats. */
export interface CommandIdentity {
  /** Undefined without an `Idempotency-Key`, like the hash: no earlier outcome is looked for. */
  readonly id: string | undefined;
  /** Hash of the input. */
  readonly requestHash: string | undefined;
}

/**
 * With an `Idempotency-Key` header the id is derived from caller, route, key and part; otherwise the bus makes a random one.
 *
 * @param part names the command among several of one request
 */
export function identifyCommand(
  secretKey: Buffer,
  actor: string,
  request: RequestInfo,
  input: unknown,
  part = '',
): CommandIdentity {
  const key = request.header('Idempotency-Key');
  if (key === '') return { id: undefined, requestHash: undefined };
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw invalidInput({ 'Idempotency-Key': ['Use 1 to 255 printable ASCII characters.'] });
  }
  const route = `${request.method} ${request.path}${part === '' ? '' : `#${part}`}`;
  return { id: idempotentCommandId(actor, route, key), requestHash: requestHash(secretKey, input) };
}

/**
 * Checks what changes with time, such as whether a host resolves. A retry is not checked: the first request was, and its answer is
 * returned, also where the first is decided during the check.
 */
export async function checkUnlessRetry(
  commands: Pick<RequestCommands, 'isDecided'>,
  type: CommandType,
  { id }: CommandIdentity,
  check: () => Promise<void> | void,
): Promise<void> {
  const isRetry = async (): Promise<boolean> => id !== undefined && (await commands.isDecided({ id, type }));
  if (await isRetry()) return;
  try {
    await check();
  } catch (error) {
    if (!(await isRetry())) throw error;
  }
}

/** The result of an accepted command; throws the answer to a refused one, or to a key reused with another request. */
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
