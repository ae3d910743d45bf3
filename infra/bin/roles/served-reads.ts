import { servedBuilds } from '../../../projections/served.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import { AppError } from '../../../schemas/errors.ts';
import { isClickHouseUnavailable } from '../../clickhouse/client.ts';
import type { Sql } from '../../postgres/client.ts';

/** Reads from what is served; null while no projector has built what is asked for. A store that is away is retryable. */
export type WhereServed = <T>(read: (served: ServedBuilds) => Promise<T>) => Promise<T | null>;

export function createWhereServed(pool: Sql): WhereServed {
  return async (read) => {
    try {
      return await read(await servedBuilds(pool));
    } catch (error) {
      if (error instanceof AppError && error.code === 'READ_MODEL_NOT_BUILT') return null;
      if (!isClickHouseUnavailable(error)) throw error;
      throw new AppError('STORE_UNAVAILABLE', 'a store did not answer', { retryable: true, cause: error });
    }
  };
}
