import PQueue from 'p-queue';

import { unavailable } from './errors.ts';

export interface ReadQueueLimits {
  /** Reads that run at a time. */
  readonly places: number;
  /** Reads of one caller that run at a time: the other places stay free for others. */
  readonly placesPerCaller: number;
  /** Requests of one caller that wait; further ones are rejected at once. */
  readonly maxWaiting: number;
}

/** The reads of one request. */
export interface ReadingRequest {
  /** Who shares the places of one caller. */
  readonly caller: string;
  /** Aborted when the request has ended: answered, given up by its client, or out of time. */
  readonly ended: AbortSignal;
  /** Unix milliseconds after which an answer is of no use. */
  readonly endsAt: number;
}

export interface ReadQueue {
  /**
   * Runs a read of the request when a place is free.
   *
   * @throws 503 `overloaded` when the request would not be answered in time
   */
  run<T>(request: ReadingRequest, read: (turn: Turn) => Promise<T>): Promise<T>;
}

/** The circumstances in which a read starts. */
export interface Turn {
  /** Another read of its caller runs, and other callers read too: theirs go first. */
  readonly isExtra: boolean;
}

/** A request is rejected when it is expected to start after this share of its time. */
const PATIENCE = 0.8;
/** Starts of waiting requests after which their rate is known. */
const KNOWN_STARTS = 8;

/** Milliseconds after a caller's last read within which it counts as one that reads. */
const RECENT_MS = 1000;

/** A request in its caller's line. */
interface Place {
  readonly number: number;
  readonly request: ReadingRequest;
  readonly refused: AbortController;
}

interface Caller {
  readonly queue: PQueue;
  readonly places: Map<ReadingRequest, Place>;
  /** Requests whose first read has not started, in order of arrival. */
  readonly waiting: Place[];
  /** Unix milliseconds since when requests have been waiting. */
  waitingSince: number;
  /** Requests that started since then. */
  starts: number;
  /** Reads that run. */
  running: number;
}

/**
 * Shares the places of reads among callers. Each caller's reads run in the order in which its requests arrived: with
 * round-robin, only 4 of 100 concurrent portfolios finished before the timeout. A request that would wait too long is
 * rejected, the newest first, as soon as that can be told from the rate at which those before it start.
 */
export function createReadQueue(limits: ReadQueueLimits, now: () => number = Date.now): ReadQueue {
  const shared = new PQueue({ concurrency: limits.places });
  const callers = new Map<string, Caller>();
  const readAt = new Map<string, number>();
  let requests = 0;

  /** Notes that a caller reads; true if another one has read, too, within `RECENT_MS`. */
  const isShared = (name: string): boolean => {
    readAt.delete(name);
    for (const [other, at] of readAt) {
      if (now() - at <= RECENT_MS) break;
      readAt.delete(other);
    }
    const others = readAt.size;
    readAt.set(name, now());
    return others > 0;
  };

  const enter = (request: ReadingRequest): { caller: Caller; place: Place } => {
    const caller = callers.get(request.caller) ?? createCaller(limits);
    const known = caller.places.get(request);
    if (known !== undefined) return { caller, place: known };
    if (caller.waiting.length === 0) Object.assign(caller, { waitingSince: now(), starts: 0 });
    if (caller.waiting.length >= limits.maxWaiting) throw overloaded(caller, now());
    const place = { number: (requests += 1), request, refused: new AbortController() };
    callers.set(request.caller, caller);
    caller.places.set(request, place);
    caller.waiting.push(place);
    const leave = (): void => {
      caller.places.delete(request);
      drop(caller.waiting, place);
      if (caller.places.size === 0) callers.delete(request.caller);
    };
    if (request.ended.aborted) leave();
    else request.ended.addEventListener('abort', leave, { once: true });
    rejectLate(caller, now());
    return { caller, place };
  };

  return {
    async run(request, read) {
      const { caller, place } = enter(request);
      const signal = AbortSignal.any([request.ended, place.refused.signal]);
      const start = async () => {
        if (drop(caller.waiting, place)) {
          caller.starts += 1;
          rejectLate(caller, now());
        }
        const isExtra = isShared(request.caller) && caller.running > 0;
        caller.running += 1;
        try {
          return await read({ isExtra });
        } finally {
          caller.running -= 1;
        }
      };
      try {
        return await caller.queue.add(() => shared.add(start, { signal }), {
          signal,
          priority: -place.number,
        });
      } catch (error) {
        if (place.refused.signal.aborted && !request.ended.aborted) throw place.refused.signal.reason;
        throw error;
      }
    },
  };
}

function createCaller({ placesPerCaller }: ReadQueueLimits): Caller {
  return {
    queue: new PQueue({ concurrency: placesPerCaller }),
    places: new Map(),
    waiting: [],
    waitingSince: 0,
    starts: 0,
    running: 0,
  };
}

/** Rejects the newest requests while they would start too late. */
function rejectLate(caller: Caller, now: number): void {
  if (caller.starts < KNOWN_STARTS) return;
  for (;;) {
    const last = caller.waiting.at(-1);
    if (last === undefined || msUntilStart(caller, now) <= PATIENCE * (last.request.endsAt - now)) return;
    last.refused.abort(overloaded(caller, now));
    caller.waiting.pop();
  }
}

/** Milliseconds until the newest waiting request is expected to start. */
function msUntilStart({ waiting, waitingSince, starts }: Caller, now: number): number {
  return (waiting.length * (now - waitingSince)) / Math.max(1, starts);
}

function overloaded(caller: Caller, now: number): Error {
  const seconds = Math.max(1, Math.ceil(msUntilStart(caller, now) / 1000));
  return unavailable(
    'overloaded',
    `Too many requests of this caller are waiting. Expected available in ${seconds} seconds.`,
    seconds,
  );
}

/** Removes an item; false if it was not there. */
function drop<T>(items: T[], item: T): boolean {
  const at = items.indexOf(item);
  if (at >= 0) items.splice(at, 1);
  return at >= 0;
}
