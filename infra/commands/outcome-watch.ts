import { sleep } from '../lifecycle.ts';
import { pollDelays } from '../waiters.ts';
import type { CommandOutcome } from '../../schemas/command-outcome.ts';
import type { Command } from '../../schemas/messages/commands.ts';

export type SubmittedCommand = Pick<Command, 'id' | 'type'>;

/** The outcomes of these commands by id; undecided commands are missing. */
export type FindOutcomes = (
  commands: readonly SubmittedCommand[],
) => Promise<ReadonlyMap<string, CommandOutcome>>;

/** Commands of this process that wait for their outcomes. */
export interface OutcomeWatch {
  /** Watches a command until `end`. Begin before it is published: a notification from then on is not missed. */
  begin(command: SubmittedCommand): { readonly outcome: Promise<CommandOutcome>; readonly end: () => void };
  /** Called for every notification that a command is decided. */
  notify(commandId: string): void;
}

interface Watched {
  readonly command: SubmittedCommand;
  readonly decided: PromiseWithResolvers<CommandOutcome>;
}

/**
 * Reads the outcomes of all watched commands together, one read at a time: after a notification, and at `pollDelays`. A
 * read by each waiting request would occupy all connections when many wait.
 */
export function createOutcomeWatch(findOutcomes: FindOutcomes): OutcomeWatch {
  const watched = new Set<Watched>();
  let woken = new AbortController();
  let isRunning = false;

  const readAll = async (): Promise<void> => {
    const reading = [...watched];
    if (reading.length === 0) return;
    try {
      const outcomes = await findOutcomes(reading.map(({ command }) => command));
      for (const { command, decided } of reading) {
        const outcome = outcomes.get(command.id);
        if (outcome !== undefined) decided.resolve(outcome);
      }
    } catch (error) {
      for (const { decided } of reading) decided.reject(error);
    }
  };

  const run = async (): Promise<void> => {
    isRunning = true;
    let delays = pollDelays();
    while (watched.size > 0) {
      await sleep(delays.next().value, woken.signal);
      if (woken.signal.aborted) delays = pollDelays();
      // Before the read: a notification during it causes another one.
      woken = new AbortController();
      await readAll();
    }
    isRunning = false;
  };

  return {
    begin(command) {
      const decided = Promise.withResolvers<CommandOutcome>();
      // A read may fail before its caller awaits the outcome.
      decided.promise.catch(() => {});
      const entry = { command, decided };
      watched.add(entry);
      if (!isRunning) void run();
      return {
        outcome: decided.promise,
        end: () => {
          watched.delete(entry);
          if (watched.size === 0) woken.abort('woken');
        },
      };
    },
    notify(commandId) {
      if ([...watched].some(({ command }) => command.id === commandId)) woken.abort('woken');
    },
  };
}
