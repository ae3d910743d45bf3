import { systemClock } from '../../infra/clock.ts';
import { isClickHouseUnavailable } from '../../infra/clickhouse/client.ts';
import type { ClickHouse, FileStatement, ReadOptions, Settings } from '../../infra/clickhouse/client.ts';
import { AppError } from '../../schemas/errors.ts';
import { HttpError, unavailable as overloaded } from './errors.ts';
import { createPacing } from './pacing.ts';
import type { Pacing } from './pacing.ts';
import { createReadQueue } from './read-queue.ts';
import type { ReadingRequest, ReadQueue, ReadQueueLimits } from './read-queue.ts';
import type { RequestInfo } from './route.ts';

interface ReadClass extends ReadQueueLimits {
  /** Time for all reads of a request together, the time in the queue included. */
  readonly timeoutMs: number;
  /** Longest wait for a place; by default all of that time. */
  readonly waitMs?: number;
  /** Longest time for a read, of a file until it begins; by default all of that time. */
  readonly readMs?: number;
  /** The request keeps its place until its answer is sent: the answer is large, and held in memory until then. */
  readonly keepsPlace?: true;
  /** A client waits for the answer, so files are sent slowly meanwhile. */
  readonly isAwaited?: true;
  /** Limits of one read; a query may set others. */
  readonly settings: Settings;
}

/** Below that of every other read: ClickHouse suspends a read while one with a smaller number runs. */
const TRACE_PRIORITY = 1000;

/**
 * What is read is limited in bytes: ClickHouse compares `max_rows_to_read` with all rows that a condition on the key selects,
 * even if LIMIT ends the read after a few. The page of a token with more transfers than that would be refused.
 */
const pageSettings = {
  max_result_rows: 10_000,
  max_memory_usage: 600_000_000,
  max_bytes_to_read: 20_000_000_000,
};

/** Every limit is far above what a legitimate read needs. */
export const readClasses = {
  /** Pages, counts and sums. */
  page: {
    isAwaited: true,
    places: 8,
    placesPerUser: 6,
    placesPerCaller: 4,
    maxWaiting: 2000,
    timeoutMs: 10_000,
    settings: pageSettings,
  },
  /** All balances of an account, or a history of one: thousands, which are worked out and sent by this process. */
  account: {
    isAwaited: true,
    keepsPlace: true,
    places: 6,
    placesPerUser: 4,
    placesPerCaller: 3,
    maxWaiting: 2000,
    timeoutMs: 10_000,
    settings: pageSettings,
  },
  /** Walks over many accounts, each of seconds. */
  trace: {
    keepsPlace: true,
    places: 2,
    placesPerUser: 2,
    placesPerCaller: 1,
    maxWaiting: 100,
    // Below the 30 s after which most HTTP clients give up.
    timeoutMs: 25_000,
    settings: {
      max_result_rows: 10_000,
      max_memory_usage: 1_000_000_000,
      max_bytes_to_read: 50_000_000_000,
      max_threads: 1,
      priority: TRACE_PRIORITY,
    },
  },
  /** Proofs, for each of which this process hashes all events of a block, unless it was the last. */
  proof: {
    keepsPlace: true,
    places: 2,
    placesPerUser: 2,
    placesPerCaller: 1,
    maxWaiting: 100,
    timeoutMs: 10_000,
    settings: pageSettings,
  },
  /** History of streams, some thousand transfers a read. */
  stream: {
    places: 3,
    placesPerUser: 2,
    placesPerCaller: 2,
    maxWaiting: 10_000,
    timeoutMs: 20_000,
    settings: { ...pageSettings, max_result_rows: 0, max_threads: 1, priority: TRACE_PRIORITY },
  },
  /** Bulk exports, each as long as its client takes to read it. */
  export: {
    keepsPlace: true,
    places: 2,
    placesPerUser: 1,
    placesPerCaller: 1,
    maxWaiting: 20,
    waitMs: 10_000,
    // A range is sorted before its file begins: of 5 million transfers in seconds, unless pages are read meanwhile.
    readMs: 600_000,
    timeoutMs: 3_600_000,
    settings: {
      max_result_rows: 0,
      max_memory_usage: 1_500_000_000,
      max_bytes_to_read: 2_000_000_000_000,
      max_threads: 1,
      priority: TRACE_PRIORITY,
    },
  },
} as const satisfies Readonly<Record<string, ReadClass>>;
export type ReadClassName = keyof typeof readClasses;

/**
 * Connections of the client: four for each place of `account`, because a balance history makes so many reads at once,
 * one for each other place, and two for health checks and the newest blocks.
 */
export const READ_CONNECTIONS =
  readClasses.page.places +
  4 * readClasses.account.places +
  readClasses.trace.places +
  readClasses.proof.places +
  readClasses.stream.places +
  readClasses.export.places +
  2;

/** The client of one request: all its reads end when the client disconnects or the time of its class is up. */
export type ClickHouseFor = (
  request: Pick<RequestInfo, 'signal' | 'caller' | 'place'>,
  options?: { readonly readClass?: ReadClassName; readonly timeoutMs?: number },
) => ClickHouse;

export interface ReadLimits {
  /** Of every class, instead of its own. */
  readonly queue?: Partial<ReadQueueLimits>;
  /** Rows a second of all files together while pages are read. */
  readonly fileRowsPerSecond?: number;
  /** Milliseconds of a clock that is never set back. */
  readonly now?: () => number;
}

/**
 * Shares a few places for reads fairly among callers, within the limits of each class. A read whose client disconnected
 * is dropped, also from the queue, and ClickHouse cancels it. Errors say whether a retry can help: `QUERY_TIMEOUT`,
 * `STORE_UNAVAILABLE`, or the error itself.
 */
export function limitReads(
  clickhouse: ClickHouse,
  { queue: limits = {}, fileRowsPerSecond = Infinity, now = () => systemClock.now() }: ReadLimits = {},
): ClickHouseFor {
  const pacing = createPacing(fileRowsPerSecond);
  const queues: Readonly<Record<ReadClassName, ReadQueue>> = {
    page: createReadQueue({ ...readClasses.page, ...limits }, now),
    account: createReadQueue({ ...readClasses.account, ...limits }, now),
    trace: createReadQueue({ ...readClasses.trace, ...limits }, now),
    proof: createReadQueue({ ...readClasses.proof, ...limits }, now),
    stream: createReadQueue({ ...readClasses.stream, ...limits }, now),
    export: createReadQueue({ ...readClasses.export, ...limits }, now),
  };
  return (info, { readClass: name = 'page', timeoutMs } = {}) => {
    const { signal: disconnected } = info;
    const readClass: ReadClass = readClasses[name];
    const queue = queues[name];
    const limitMs = timeoutMs ?? readClass.timeoutMs;
    const deadline = AbortSignal.timeout(limitMs);
    const waited = readClass.waitMs === undefined ? deadline : AbortSignal.timeout(readClass.waitMs);
    const ended = AbortSignal.any([disconnected, deadline]);
    const request = { caller: info.caller(), ended, endsAt: now() + limitMs };
    let hasStarted = false;
    if (readClass.keepsPlace === true) info.place.isWanted = () => queue.isFull();
    const inPlace: InPlace =
      readClass.keepsPlace === true
        ? keepPlace(queue, request, { answered: disconnected, waited })
        : (read) => queue.run(request, read);
    const asReadError = (cause: unknown, name: string): unknown => {
      const unavailable = (why: string): AppError =>
        new AppError('STORE_UNAVAILABLE', `ClickHouse: ${why}`, { retryable: true, cause });
      if (cause instanceof HttpError) return cause;
      if (waited.aborted && !hasStarted) {
        return overloaded('overloaded', 'No read slot became free in time.', 1);
      }
      if (deadline.aborted) {
        return new AppError('QUERY_TIMEOUT', `ClickHouse: ${name} timed out`, { retryable: true, cause });
      }
      if (disconnected.aborted) return unavailable('the client disconnected');
      return isClickHouseUnavailable(cause) ? unavailable('read failed') : cause;
    };
    const limited = async <T>(name: string, read: (priority: number) => Promise<T>): Promise<T> => {
      try {
        return await inPlace((priority) => {
          hasStarted = true;
          return readClass.isAwaited ? pacing.during(() => read(priority)) : read(priority);
        });
      } catch (error) {
        throw asReadError(error, name);
      }
    };
    const withLimits = ({ settings }: ReadOptions, priority: number): ReadOptions => ({
      settings: {
        priority,
        max_execution_time: Math.ceil(readClass.timeoutMs / 1000),
        ...readClass.settings,
        ...settings,
      },
      signal: ended,
      timeoutMs: readClass.readMs ?? limitMs,
    });
    return {
      ...clickhouse,
      rows: (query, params, options = {}) =>
        limited(query.name, (priority) => clickhouse.rows(query, params, withLimits(options, priority))),
      eachPart: (query, params, onRows, options = {}) =>
        limited(query.name, (priority) =>
          clickhouse.eachPart(query, params, onRows, withLimits(options, priority)),
        ),
      // Only the beginning of a file is awaited: its class keeps the place until the answer is sent.
      file: (statement, params, options) =>
        limited(statement.name, async (priority) => {
          const limits = withLimits(options, priority);
          const settings = { ...limits.settings, ...readingSettings(statement, pacing) };
          const file = await clickhouse.file(statement, params, { ...limits, settings });
          return pacing.paced(file, statement.rowBytes);
        }),
    };
  };
}

/** How fast ClickHouse reads what is sorted before its file begins: it pauses between parts. */
function readingSettings({ isSorted }: FileStatement, pacing: Pacing): Settings {
  const rate = isSorted ? pacing.readRate() : Infinity;
  if (rate === Infinity) return {};
  return { max_execution_speed: rate, timeout_before_checking_execution_speed: 0 };
}

/** Runs a read in a place of the queue, with its priority. */
type InPlace = <T>(read: (priority: number) => Promise<T>) => Promise<T>;

/** Takes a place at the first read, and keeps it until the request is answered. Stops waiting for one when `waited` fires. */
function keepPlace(
  queue: ReadQueue,
  request: Omit<ReadingRequest, 'ended'>,
  { answered, waited }: { readonly answered: AbortSignal; readonly waited: AbortSignal },
): InPlace {
  const take = (): Promise<number> =>
    new Promise((resolve, reject) => {
      const late = new AbortController();
      const giveUp = (): void => late.abort();
      waited.addEventListener('abort', giveUp, { once: true });
      const ended = AbortSignal.any([answered, late.signal]);
      const keep = async (priority: number): Promise<void> => {
        waited.removeEventListener('abort', giveUp);
        resolve(priority);
        await new Promise((done) => answered.addEventListener('abort', done, { once: true }));
      };
      queue.run({ ...request, ended }, keep).catch(reject);
    });
  let taken: Promise<number> | null = null;
  return async (read) => await read(await (taken ??= take()));
}
