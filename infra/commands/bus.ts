import { createHash, createHmac, randomUUID } from 'node:crypto';

import type { Publisher } from '../kafka/client.ts';
import { sleep } from '../lifecycle.ts';
import { createWaiters } from '../waiters.ts';
import type { CommandOutcome } from '../../schemas/command-outcome.ts';
import { AppError } from '../../schemas/errors.ts';
import { commandsMessage } from '../../schemas/messages/commands.ts';
import type { Command, CommandOf, CommandType } from '../../schemas/messages/commands.ts';
import { topics } from '../../schemas/topics.ts';

/** A command without the envelope, which the bus adds. */
export type CommandRequest = {
  [T in CommandType]: {
    readonly type: T;
    readonly actor: string;
    readonly body: CommandOf<T>['body'];
    /** Random by default. */
    readonly id?: string;
    readonly requestHash?: string | undefined;
    /** How long to wait for the outcome; the bus's own timeout by default. */
    readonly timeoutMs?: number;
  };
}[CommandType];

export interface CommandBus {
  /**
   * Appends a command to the log and waits for its outcome. A command whose id is already decided is not appended again.
   * Throws a retryable `COMMAND_TIMEOUT` when the outcome is not known in time; the command may still be decided, and a
   * later call with the same id returns its outcome.
   */
  submit(request: CommandRequest): Promise<CommandOutcome>;
  /** Called for every notification that a command is decided. */
  notify(commandId: string): void;
}

/** The outcome of a command; null while it is undecided. */
export type FindOutcome = (commandId: string, type: CommandType) => Promise<CommandOutcome | null>;

export interface CommandBusDeps {
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly findOutcome: FindOutcome;
  readonly timeoutMs: number;
  readonly now: () => number;
}

export function createCommandBus({ publisher, findOutcome, timeoutMs, now }: CommandBusDeps): CommandBus {
  const waiters = createWaiters();

  const outcomeOf = async ({ id, type }: Command, deadline: number): Promise<CommandOutcome> => {
    const found = await waiters.until([id], () => findOutcome(id, type), { deadline });
    if (found !== null) return found;
    throw new AppError('COMMAND_TIMEOUT', 'The outcome of the request is not known yet.', {
      retryable: true,
    });
  };

  return {
    async submit({ id, requestHash, timeoutMs: waitMs = timeoutMs, ...request }) {
      const deadline = performance.now() + waitMs;
      const command: Command = commandsMessage.parse({
        v: 1,
        id: id ?? randomUUID(),
        issued_at: now(),
        request_hash: requestHash ?? null,
        ...request,
      });
      if (id !== undefined) {
        const decided = await findOutcome(id, request.type);
        if (decided !== null) return decided;
      }
      const published = publisher.publish(topics.commands, [{ value: command }]);
      // The append counts against the same timeout: Kafka being unavailable must not hold a client longer.
      const timer = new AbortController();
      await Promise.race([published, sleep(waitMs, timer.signal)]).finally(() => timer.abort());
      return await outcomeOf(command, deadline);
    },
    notify: (commandId) => waiters.notify(commandId),
  };
}

/** One id for all retries of a request: same caller, same route, same `Idempotency-Key`. */
export function idempotentCommandId(actor: string, route: string, idempotencyKey: string): string {
  const parts = JSON.stringify([actor, route, idempotencyKey]);
  return `idem:${createHash('sha256').update(parts).digest('hex')}`;
}

/** Detects a retry with another body. Keyed with `SECRET_KEY`, as it is written to the log and the input may be guessable. */
export function requestHash(secretKey: Buffer, input: unknown): string {
  return createHmac('sha256', secretKey)
    .update(`request:${JSON.stringify(input)}`)
    .digest('hex');
}
