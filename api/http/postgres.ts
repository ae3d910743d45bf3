import type { Sql } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';
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

/** A request that would wait for longer is rejected. */
const WAIT_MS = 10_000;

/** PostgreSQL for one request. */
export type PoolFor = (request: Pick<RequestInfo, 'signal' | 'caller'>) => Sql;

/**
 * Shares a few places for the statements of requests fairly among callers. Those of one whose client disconnected are dropped
 * while they wait; one that has begun is ended by its time limit only.
 */
export function limitStatements(pool: Sql, now: () => number = Date.now): PoolFor {
  const queue = createReadQueue(statementLimits, now);
  return ({ signal, caller }) => {
    let reading: Parameters<typeof queue.run>[0] | null = null;
    return {
      async query(...statement) {
        reading ??= { caller: caller(), ended: signal, endsAt: now() + WAIT_MS };
        try {
          return await queue.run(reading, () => pool.query(...statement));
        } catch (cause) {
          if (!signal.aborted) throw cause;
          const message = 'PostgreSQL: the client disconnected';
          throw new AppError('STORE_UNAVAILABLE', message, { retryable: true, cause });
        }
      },
    };
  };
}
