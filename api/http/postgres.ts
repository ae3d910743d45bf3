import type { Sql } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';
import { unavailable } from './errors.ts';
import { createReadQueue } from './read-queue.ts';
import type { ReadQueueLimits } from './read-queue.ts';
import type { RequestInfo } from './route.ts';

const statementLimits: ReadQueueLimits = {
  places: 8,
  placesPerUser: 6,
  placesPerCaller: 4,
  maxWaiting: 2000,
};

/** Connections of the pool: four more than there are places, to identify callers, for health checks and for what requests share. */
export const POSTGRES_CONNECTIONS = statementLimits.places + 4;

/** Longest wait of a statement for its place. */
const WAIT_MS = 10_000;

/** PostgreSQL for one request. */
export type PoolFor = (request: Pick<RequestInfo, 'signal' | 'caller'>) => Sql;

/**
 * Shares a few places for the statements of requests fairly among callers. Those of one whose client disconnected are dropped
 * while they wait; one that has begun is ended by its time limit only.
 */
export function limitStatements(pool: Sql): PoolFor {
  const queue = createReadQueue(statementLimits);
  return ({ signal, caller }) => ({
    async query(...statement) {
      const late = new AbortController();
      const timer = setTimeout(() => late.abort(), WAIT_MS);
      const ended = AbortSignal.any([signal, late.signal]);
      // No early rejection: statements take milliseconds, so a moment in which none ended says nothing about the wait.
      const reading = { caller: caller(), ended, endsAt: Infinity };
      try {
        return await queue.run(reading, () => {
          clearTimeout(timer);
          return pool.query(...statement);
        });
      } catch (cause) {
        if (late.signal.aborted)
          throw unavailable('overloaded', 'No connection to PostgreSQL became free in time.', 1);
        if (!signal.aborted) throw cause;
        const message = 'PostgreSQL: the client disconnected';
        throw new AppError('STORE_UNAVAILABLE', message, { retryable: true, cause });
      } finally {
        clearTimeout(timer);
        // Takes the statement out of its caller's line, which holds it until its signal fires.
        late.abort();
      }
    },
  });
}
