import type { CommandBus } from '../../infra/commands/bus.ts';
import { sleep } from '../../infra/lifecycle.ts';
import { unavailable } from '../http/errors.ts';
import type { Caller } from '../http/read-queue.ts';
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

/**
 * The share of the places for all callers without a user together: each network has a line, and one caller may use many networks.
 */
const ANONYMOUS_SHARE = 0.5;

/** The command bus of one request: its commands wait in the line of its user. */
export type CommandsFor = (request: Pick<RequestInfo, 'caller' | 'signal'>) => RequestCommands;
export type RequestCommands = Pick<CommandBus, 'submit' | 'isDecided'>;

/**
 * Bounds the commands in flight of each user and of all together. Further ones wait in a line for each user, and the lines
 * take turns, those of users and those of networks apart. A command that cannot be published in time is refused: 503 `overloaded`.
 *
 * @param options.timeoutMs of a command, the time in line included
 */
export function limitCommands(
  commands: RequestCommands,
  { timeoutMs, ...limits }: { readonly timeoutMs: number } & Partial<CommandLimits>,
): CommandsFor {
  const takePlace = createCallerQueue({ ...COMMAND_LIMITS, ...limits });
  return ({ caller, signal }) => ({
    isDecided: async (command) => await commands.isDecided(command),
    async submit(command) {
      const deadline = performance.now() + timeoutMs;
      const leave = await takePlace({ caller: caller(), signal, waitMs: MAX_WAIT_SHARE * timeoutMs });
      try {
        // A command keeps its place when its client disconnects: otherwise clients that hang up could publish without
        // bound.
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

/** Lines that take turns, in the order of their turns. */
interface Group {
  readonly lines: Map<string, Line>;
  readonly places: number;
  inFlight: number;
}

interface Arrival {
  readonly caller: Caller;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  readonly waitMs: number;
}

/** Takes a place when one is free, and returns how to leave it. */
type TakePlace = (arrival: Arrival) => Promise<() => void>;

/** Places that are shared among callers. */
export function createCallerQueue({
  inFlight: places,
  inFlightPerUser,
  maxWaiting,
}: CommandLimits): TakePlace {
  const createGroup = (most: number): Group => ({ lines: new Map(), places: most, inFlight: 0 });
  const users = createGroup(places);
  const networks = createGroup(Math.ceil(ANONYMOUS_SHARE * places));
  /** In the order of their turns. */
  const groups = [users, networks];

  const hasTurn = ([, line]: [string, Line]): boolean =>
    line.waiting.length > 0 && line.inFlight < inFlightPerUser;

  const startNext = (group: Group): boolean => {
    const next = group.inFlight < group.places ? group.lines.entries().find(hasTurn) : undefined;
    if (next === undefined) return false;
    const [user, line] = next;
    group.lines.delete(user);
    group.lines.set(user, line);
    line.inFlight += 1;
    group.inFlight += 1;
    line.waiting.shift()?.abort();
    return true;
  };

  const startWaiting = (): void => {
    while (users.inFlight + networks.inFlight < places) {
      const started = groups.findIndex(startNext);
      if (started < 0) return;
      groups.push(...groups.splice(started, 1));
    }
  };

  const forgetIdle = ({ lines }: Group, user: string, line: Line): void => {
    if (line.inFlight === 0 && line.waiting.length === 0) lines.delete(user);
  };

  const leave = (group: Group, user: string, line: Line): void => {
    line.inFlight -= 1;
    group.inFlight -= 1;
    forgetIdle(group, user, line);
    startWaiting();
  };

  return async ({ caller: { user, isAnonymous = false }, signal, waitMs }) => {
    const group = isAnonymous ? networks : users;
    const line = group.lines.get(user) ?? { waiting: [], inFlight: 0, lastWaitMs: 0 };
    if (line.waiting.length >= maxWaiting) throw overloaded(line);
    group.lines.set(user, line);
    const arrivedAt = performance.now();
    const turn = new AbortController();
    line.waiting.push(turn);
    startWaiting();
    await sleep(waitMs, AbortSignal.any([turn.signal, signal]));
    if (!turn.signal.aborted) {
      line.waiting.splice(line.waiting.indexOf(turn), 1);
      line.lastWaitMs = waitMs;
      forgetIdle(group, user, line);
      throw overloaded(line);
    }
    line.lastWaitMs = performance.now() - arrivedAt;
    return () => leave(group, user, line);
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
