import { systemClock } from '../../infra/clock.ts';
import { unavailable } from './errors.ts';
import { createUsage, isHeavy } from './usage.ts';
import type { Usage } from './usage.ts';

export interface ReadQueueLimits {
  /** Reads that run at a time. */
  readonly places: number;
  /** Reads of one user that run at a time, of all keys and sessions: the other places stay free for others. */
  readonly placesPerUser: number;
  /** Reads of one caller that run at a time. */
  readonly placesPerCaller: number;
  /** Requests of one caller that wait; further ones are rejected at once. */
  readonly maxWaiting: number;
}

/** Who reads. */
export interface Caller {
  /** The user, or the network of a call without one. */
  readonly user: string;
  /** The key or session of the user. */
  readonly name: string;
  /** Of a call without a user. */
  readonly isAnonymous?: boolean;
}

/** The reads of one request. */
export interface ReadingRequest {
  readonly caller: Caller;
  /** Aborted when the request has ended: answered, given up by its client, or out of time. */
  readonly ended: AbortSignal;
  /** Milliseconds of the clock of the queue after which an answer is of no use. */
  readonly endsAt: number;
}

export interface ReadQueue {
  /**
   * Runs a read of the request when a place is free. `priority` is a greater number for a user whose reads have taken
   * much more time than those of another user, and likewise among the callers of a user: ClickHouse suspends a read
   * while one with a smaller number runs.
   *
   * @throws 503 `overloaded` when the request would not be answered in time, the reason of `ended` when it ended before
   */
  run<T>(request: ReadingRequest, read: (priority: number) => Promise<T>): Promise<T>;
  /** True while a read waits for a place. */
  isFull(): boolean;
}

/** A request is rejected when it is expected to start after this share of its time. */
const MAX_WAIT_SHARE = 0.8;
/** Starts of waiting requests, or milliseconds of waiting, after which their rate is known. */
const KNOWN_STARTS = 8;
const KNOWN_MS = 2000;

/** A request in its caller's line. */
interface Place {
  readonly number: number;
  readonly user: User;
  readonly line: Line;
  readonly request: ReadingRequest;
  readonly refused: AbortController;
}

interface WaitingRead {
  readonly place: Place;
  readonly start: () => void;
}

/** The requests and reads of one caller. */
interface Line {
  readonly usage: Usage;
  readonly places: Map<ReadingRequest, Place>;
  /** Requests whose first read has not started, in order of arrival. */
  readonly requests: Place[];
  readonly reads: WaitingRead[];
}

interface User {
  readonly usage: Usage;
  readonly lines: Map<string, Line>;
  /** Milliseconds since when requests have been waiting. */
  waitingSince: number;
  /** Requests that started since then. */
  starts: number;
}

/**
 * Shares the places of reads among users, and the places of a user among its callers. A free place goes to the user with the
 * fewest reads running, then to the one that has read least lately; likewise among its callers. The reads of a caller run in
 * the order in which its requests arrived: with round-robin, only 4 of 100 concurrent portfolios finished before the timeout.
 * A request that would wait too long is rejected, the newest first, as soon as that can be told from the rate at which those
 * before it start.
 */
export function createReadQueue(limits: ReadQueueLimits, now = () => systemClock.now()): ReadQueue {
  const users = new Map<string, User>();
  const enter = createEntrance(users, limits, now);
  const takePlace = createPlaces(users, limits);
  return {
    async run(request, read) {
      const place = enter(request);
      const { user, line } = place;
      const leave = await takePlace(place);
      try {
        if (drop(line.requests, place)) {
          user.starts += 1;
          rejectLate(user, now());
        }
        return await read(priorityOf(place, users));
      } finally {
        leave();
      }
    },
    isFull: () =>
      [...users.values()].some(({ lines }) => [...lines.values()].some(({ reads }) => reads.length > 0)),
  };
}

/** Returns the place of a request in its caller's line, at the end of it if the request is new. */
function createEntrance(
  users: Map<string, User>,
  { maxWaiting }: ReadQueueLimits,
  now: () => number,
): (request: ReadingRequest) => Place {
  let requests = 0;
  return (request) => {
    forgetIdle(users);
    const { caller, ended } = request;
    const user = entryOf(users, caller.user, () => createUser(now));
    const line = entryOf(user.lines, caller.name, () => createLine(now));
    const known = line.places.get(request);
    if (known !== undefined) return known;
    if (waitingLines(user).length === 0) Object.assign(user, { waitingSince: now(), starts: 0 });
    if (line.requests.length >= maxWaiting) throw overloaded(user, line, now());
    const place = { number: (requests += 1), user, line, request, refused: new AbortController() };
    line.places.set(request, place);
    line.requests.push(place);
    const leave = (): void => {
      line.places.delete(request);
      drop(line.requests, place);
    };
    if (ended.aborted) leave();
    else ended.addEventListener('abort', leave, { once: true });
    rejectLate(user, now());
    return place;
  };
}

/** Returns a function that waits for a place for one read, and resolves to how to leave it. */
function createPlaces(
  users: ReadonlyMap<string, User>,
  { places, placesPerUser, placesPerCaller }: ReadQueueLimits,
): (place: Place) => Promise<() => void> {
  let running = 0;
  const isReady = ({ usage, reads }: Line): boolean => reads.length > 0 && usage.running() < placesPerCaller;
  const readyLines = ({ lines }: User): Line[] => [...lines.values()].filter(isReady);
  const startReads = (): void => {
    while (running < places) {
      const ready = [...users.values()].filter(
        (user) => user.usage.running() < placesPerUser && readyLines(user).length > 0,
      );
      const user = leastUsed(ready);
      const line = user === null ? null : leastUsed(readyLines(user));
      const read = line?.reads.reduce((a, b) => (b.place.number < a.place.number ? b : a));
      if (line === null || read === undefined) return;
      drop(line.reads, read);
      read.start();
    }
  };
  return async (place) => {
    const { user, line, request, refused } = place;
    const signal = AbortSignal.any([request.ended, refused.signal]);
    const turn = Promise.withResolvers<() => void>();
    const start = (): void => {
      const usages = [user.usage.begin(), line.usage.begin()];
      running += 1;
      turn.resolve(() => {
        for (const end of usages) end();
        running -= 1;
        startReads();
      });
    };
    const read = { place, start };
    const giveUp = (): void => {
      if (drop(line.reads, read)) turn.reject(signal.reason);
    };
    line.reads.push(read);
    if (signal.aborted) giveUp();
    else signal.addEventListener('abort', giveUp, { once: true });
    startReads();
    return await turn.promise.finally(() => signal.removeEventListener('abort', giveUp));
  };
}

function priorityOf({ user, line }: Place, users: ReadonlyMap<string, User>): number {
  const usages = (all: Iterable<{ readonly usage: Usage }>): Usage[] => [...all].map(({ usage }) => usage);
  const isHeavyUser = isHeavy(user.usage, usages(users.values()));
  const isHeavyCaller = isHeavy(line.usage, usages(user.lines.values()));
  return 1 + (isHeavyUser ? 2 : 0) + (isHeavyCaller ? 1 : 0);
}

const createUser = (now: () => number): User => ({
  usage: createUsage(now),
  lines: new Map(),
  waitingSince: now(),
  starts: 0,
});

const createLine = (now: () => number): Line => ({
  usage: createUsage(now),
  places: new Map(),
  requests: [],
  reads: [],
});

/** The one with the fewest reads running, then with the least read time. */
function leastUsed<T extends { readonly usage: Usage }>(all: readonly T[]): T | null {
  const [first, ...others] = all;
  if (first === undefined) return null;
  return others.reduce((least, other) => {
    const fewer = other.usage.running() - least.usage.running();
    return fewer < 0 || (fewer === 0 && other.usage.ms() < least.usage.ms()) ? other : least;
  }, first);
}

/** Forgets users and callers without requests that have not read lately. */
function forgetIdle(users: Map<string, User>): void {
  for (const [name, { usage, lines }] of users) {
    for (const [caller, line] of lines)
      if (line.places.size === 0 && line.usage.isIdle()) lines.delete(caller);
    if (lines.size === 0 && usage.isIdle()) users.delete(name);
  }
}

const waitingLines = ({ lines }: User): Line[] =>
  [...lines.values()].filter((line) => line.requests.length > 0);

/** Rejects the newest requests of each caller while they would start too late. */
function rejectLate(user: User, now: number): void {
  if (user.starts < KNOWN_STARTS && now - user.waitingSince < KNOWN_MS) return;
  for (const line of waitingLines(user)) {
    for (let last = line.requests.at(-1); last !== undefined; last = line.requests.at(-1)) {
      if (msUntilStart(user, line, now) <= MAX_WAIT_SHARE * (last.request.endsAt - now)) break;
      last.refused.abort(overloaded(user, line, now));
      line.requests.pop();
    }
  }
}

/** Milliseconds until the newest waiting request of a caller is expected to start, in turn with the user's other callers. */
function msUntilStart(user: User, line: Line, now: number): number {
  const before = line.requests.length * Math.max(1, waitingLines(user).length);
  return (before * (now - user.waitingSince)) / Math.max(1, user.starts);
}

function overloaded(user: User, line: Line, now: number): Error {
  const seconds = Math.max(1, Math.ceil(msUntilStart(user, line, now) / 1000));
  return unavailable(
    'overloaded',
    `Too many requests of this caller are waiting. Expected available in ${seconds} seconds.`,
    seconds,
  );
}

function entryOf<K, V>(map: Map<K, V>, key: K, create: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const created = create();
  map.set(key, created);
  return created;
}

/** Removes an item; false if it was not there. */
function drop<T>(items: T[], item: T): boolean {
  const at = items.indexOf(item);
  if (at >= 0) items.splice(at, 1);
  return at >= 0;
}
