import { createHash, createHmac, randomUUID } from 'node:crypto';

import { pause } from '../../infra/lifecycle.ts';
import type { Publisher } from '../../infra/kafka/client.ts';
import type { CommandOutcome } from '../../projections/outcomes/queries.ts';
import { AppError } from '../../schemas/errors.ts';
import { commandsMessage } from '../../schemas/messages/commands.ts';
import type { Command, CommandOf, CommandType } from '../../schemas/messages/commands.ts';
import { topics } from '../../schemas/topics.ts';
import { createWaiting } from './waiting.ts';

/** What a caller of `submit` says; the envelope is made here. */
export type CommandRequest = {
  [T in CommandType]: {
    readonly type: T;
    readonly actor: string;
    readonly body: CommandOf<T>['body'];
    /** Without one, a random id. */
    readonly id?: string;
    readonly requestHash?: string | undefined;
    /** For so long its outcome is waited for, where that is not as long as for others. */
    readonly timeoutMs?: number;
  };
}[CommandType];

export interface CommandBus {
  /**
   * Appends a command to the log and waits for its outcome. A command whose id has been decided is not appended again.
   * Throws a retryable `COMMAND_TIMEOUT` when the outcome is not known in time; the command stands all the same, and
   * its id finds the outcome later.
   */
  submit(request: CommandRequest): Promise<CommandOutcome>;
  /** Wakes who waits for this command; called for every notification. */
  wake(commandId: string): void;
}

export interface CommandBusDeps {
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly outcome: (commandId: string, type: CommandType) => Promise<CommandOutcome | null>;
  readonly timeoutMs: number;
  readonly now: () => number;
}

export function createCommandBus({ publisher, outcome, timeoutMs, now }: CommandBusDeps): CommandBus {
  const waiting = createWaiting();

  const waitFor = async ({ id, type }: Command, deadline: number): Promise<CommandOutcome> => {
    const found = await waiting.until(id, () => outcome(id, type), deadline);
    if (found !== null) return found;
    throw new AppError('COMMAND_TIMEOUT', 'The outcome of the request is not known yet.', {
      retryable: true,
    });
  };

  return {
    async submit({ id, requestHash, timeoutMs: within = timeoutMs, ...request }) {
      const deadline = performance.now() + within;
      const command: Command = commandsMessage.parse({
        v: 1,
        id: id ?? randomUUID(),
        issued_at: now(),
        request_hash: requestHash ?? null,
        ...request,
      });
      if (id !== undefined) {
        const decided = await outcome(id, request.type);
        if (decided !== null) return decided;
      }
      const published = publisher.publish(topics.commands, [{ value: command }]);
      // A log that is away must not hold a client longer than the outcome may.
      const tooLate = new AbortController();
      await Promise.race([published, pause(within, tooLate.signal)]).finally(() => tooLate.abort());
      return await waitFor(command, deadline);
    },
    wake: (commandId) => waiting.wake(commandId),
  };
}

/** The id that every retry of one request has: same caller, same route, same `Idempotency-Key`. */
export function idempotentCommandId(actor: string, route: string, idempotencyKey: string): string {
  const parts = JSON.stringify([actor, route, idempotencyKey]);
  return `idem:${createHash('sha256').update(parts).digest('hex')}`;
}

/** By which a retry with another body is noticed; keyed with `SECRET_KEY`, as it goes into the log. */
export function requestHash(secretKey: Buffer, input: unknown): string {
  return createHmac('sha256', secretKey)
    .update(`request:${JSON.stringify(input)}`)
    .digest('hex');
}
