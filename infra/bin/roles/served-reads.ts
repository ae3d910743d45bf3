import { servedBuilds } from '../../../projections/served.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import { AppError } from '../../../schemas/errors.ts';
import { isClickHouseUnavailable } from '../../clickhouse/client.ts';
import type { Sql } from '../../postgres/client.ts';

/** Reads from the served builds; null while one is not built. An unavailable store is a retryable error. */
export type ServedReader = <T>(read: (served: ServedBuilds) => Promise<T>) => Promise<T | null>;

export function createServedReader(pool: Sql): ServedReader {
  return async (read) => {
    try {
      return await read(await servedBuilds(pool));
    } catch (error) {
      if (error instanceof AppError && error.code === 'READ_MODEL_NOT_BUILT') return null;
      if (!isClickHouseUnavailable(error)) throw error;
      throw new AppError('STORE_UNAVAILABLE', 'store unavailable', { retryable: true, cause: error });
    }
  };
}
