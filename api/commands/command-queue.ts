import type { CommandBus } from '../../infra/commands/bus.ts';
import { sleep } from '../../infra/lifecycle.ts';
import { unavailable } from '../http/errors.ts';
import type { RequestInfo } from '../http/route.ts';

export interface CommandLimits {
  /** Commands in flight: published, and neither decided nor timed out. */
  readonly inFlight: number;
  /** Of one user. */
  readonly inFlightPerUser: number;
  /** Commands of one user that wait to be published; further ones are refused at once. */
  readonly maxWaiting: number;
}

/**
 * One partition decides all commands in order, a few milliseconds each: a command waits for those in flight before it. With
 * 16 in flight a user loses little throughput, as the projection decides what one fetch returns in one transaction (16 callers:
 * 142 a second, 118 with eight in flight).
 */
export const COMMAND_LIMITS: CommandLimits = { inFlight: 48, inFlightPerUser: 16, maxWaiting: 2000 };

/** The share of its time that a command may wait to be published; the rest is for its decision. */
const MAX_WAIT_SHARE = 0.8;

/** The command bus of one request: its commands wait in the line of its user. */
export type CommandsFor = (request: Pick<RequestInfo, 'caller' | 'signal'>) => RequestCommands;
export type RequestCommands = Pick<CommandBus, 'submit' | 'isDecided'>;

/**
 * Bounds the commands in flight of each user and of all together. Further ones wait in a line for each user, and the lines
 * take turns. A command that cannot be published in time is refused: 503 `overloaded`.
 *
 * @param options.timeoutMs of a command, the time in line included
 */
export function limitCommands(
  commands: RequestCommands,
  { timeoutMs, ...limits }: { readonly timeoutMs: number } & Partial<CommandLimits>,
): CommandsFor {
  const takePlace = createCommandQueue({ ...COMMAND_LIMITS, ...limits });
  return ({ caller, signal }) => ({
    isDecided: async (command) => await commands.isDecided(command),
    async submit(command) {
      const deadline = performance.now() + timeoutMs;
      const leave = await takePlace({ user: caller().user, signal, waitMs: MAX_WAIT_SHARE * timeoutMs });
      try {
        // Also where the client disconnects: without its place, clients that hang up could publish without bound.
        return await commands.submit({ ...command, timeoutMs: deadline - performance.now() });
      } finally {
        leave();
      }
    },
  });
}

interface Line {
  /** In order of arrival; aborted when its turn has come. */
  readonly waiting: AbortController[];
  inFlight: number;
  /** How long the last command waited, in milliseconds. */
  lastWaitMs: number;
}

interface Arrival {
  readonly user: string;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  readonly waitMs: number;
}

/** Takes a place when one is free, and returns how to leave it. */
type TakePlace = (arrival: Arrival) => Promise<() => void>;

function createCommandQueue({ inFlight: places, inFlightPerUser, maxWaiting }: CommandLimits): TakePlace {
  /** Lines by user, in the order of their turns. */
  const lines = new Map<string, Line>();
  let inFlight = 0;

  const hasTurn = ([, line]: [string, Line]): boolean =>
    line.waiting.length > 0 && line.inFlight < inFlightPerUser;

  const startWaiting = (): void => {
    while (inFlight < places) {
      const next = lines.entries().find(hasTurn);
      if (next === undefined) return;
      const [user, line] = next;
      lines.delete(user);
      lines.set(user, line);
      line.inFlight += 1;
      inFlight += 1;
      line.waiting.shift()?.abort();
    }
  };

  const forgetIdle = (user: string, line: Line): void => {
    if (line.inFlight === 0 && line.waiting.length === 0) lines.delete(user);
  };

  const leave = (user: string, line: Line): void => {
    line.inFlight -= 1;
    inFlight -= 1;
    forgetIdle(user, line);
    startWaiting();
  };

  return async ({ user, signal, waitMs }) => {
    const line = lines.get(user) ?? { waiting: [], inFlight: 0, lastWaitMs: 0 };
    if (line.waiting.length >= maxWaiting) throw overloaded(line);
    lines.set(user, line);
    const arrivedAt = performance.now();
    const turn = new AbortController();
    line.waiting.push(turn);
    startWaiting();
    await sleep(waitMs, AbortSignal.any([turn.signal, signal]));
    if (!turn.signal.aborted) {
      line.waiting.splice(line.waiting.indexOf(turn), 1);
      line.lastWaitMs = waitMs;
      forgetIdle(user, line);
      throw overloaded(line);
    }
    line.lastWaitMs = performance.now() - arrivedAt;
    return () => leave(user, line);
  };
}

function overloaded({ lastWaitMs }: Line): Error {
  const seconds = Math.max(1, Math.ceil(lastWaitMs / 1000));
  return unavailable(
    'overloaded',
    `Too many changes of this caller are waiting. Expected available in ${seconds} seconds.`,
    seconds,
  );
}
