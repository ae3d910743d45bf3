import { createHash, createHmac, randomUUID } from 'node:crypto';

import type { Publisher } from '../kafka/client.ts';
import { withTimeout } from '../lifecycle.ts';
import type { CommandOutcome } from '../../schemas/command-outcome.ts';
import { AppError } from '../../schemas/errors.ts';
import { commandsMessage } from '../../schemas/messages/commands.ts';
import type { Command, CommandOf, CommandType } from '../../schemas/messages/commands.ts';
import { topics } from '../../schemas/topics.ts';
import { createOutcomeWatch } from './outcome-watch.ts';
import type { FindOutcomes, SubmittedCommand } from './outcome-watch.ts';

/** A command without the envelope, which the bus adds. */
export type CommandRequest = {
  [T in CommandType]: {
    readonly type: T;
    readonly actor: string;
    readonly body: CommandOf<T>['body'];
    /** Random by default. */
    readonly id?: string | undefined;
    readonly requestHash?: string | undefined;
    /** Unix milliseconds; now by default. */
    readonly issuedAt?: number;
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
  /** Whether the outcome of a command is known: a request with its id is a retry. */
  isDecided(command: SubmittedCommand): Promise<boolean>;
  /** Called for every notification that a command is decided. */
  notify(commandId: string): void;
}

export interface CommandBusDeps {
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly findOutcomes: FindOutcomes;
  readonly timeoutMs: number;
  readonly now: () => number;
}

export function createCommandBus({ publisher, findOutcomes, timeoutMs, now }: CommandBusDeps): CommandBus {
  const watch = createOutcomeWatch(findOutcomes);

  const storedOutcome = async (command: SubmittedCommand): Promise<CommandOutcome | null> =>
    (await findOutcomes([command])).get(command.id) ?? null;

  const publish = async (command: Command): Promise<'published'> => {
    await publisher.publish(topics.commands, [{ value: command }]);
    return 'published';
  };

  /** Publishes a command and waits for its outcome; null when it is not known in time. */
  const publishAndWait = async (command: Command, deadline: number): Promise<CommandOutcome | null> => {
    const { outcome, end } = watch.begin(command);
    try {
      // The append counts against the same timeout: Kafka being unavailable must not hold a client longer.
      const published = await withTimeout(publish(command), deadline - performance.now(), null);
      if (published === null) return null;
      const decided = await withTimeout(outcome, deadline - performance.now(), null);
      return decided ?? (await storedOutcome(command));
    } finally {
      end();
    }
  };

  return {
    async submit({ id, requestHash, issuedAt = now(), timeoutMs: waitMs = timeoutMs, ...request }) {
      const deadline = performance.now() + waitMs;
      const command: Command = commandsMessage.parse({
        v: 1,
        id: id ?? randomUUID(),
        issued_at: issuedAt,
        request_hash: requestHash ?? null,
        ...request,
      });
      if (id !== undefined) {
        const decided = await storedOutcome(command);
        if (decided !== null) return decided;
      }
      const outcome = await publishAndWait(command, deadline);
      if (outcome !== null) return outcome;
      throw new AppError('COMMAND_TIMEOUT', 'The outcome of the request is not known yet.', {
        retryable: true,
      });
    },
    isDecided: async (command) => (await storedOutcome(command)) !== null,
    notify: (commandId) => watch.notify(commandId),
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
