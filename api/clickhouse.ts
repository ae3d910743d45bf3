import { isClickHouseUnavailable } from '../infra/clickhouse/client.ts';
import type { ClickHouse } from '../infra/clickhouse/client.ts';
import { AppError } from '../schemas/errors.ts';

/** The same client, whose reads say by their error whether trying again can help. */
export function guardClickHouse(clickhouse: ClickHouse): ClickHouse {
  return {
    ...clickhouse,
    async rows(query, params, options) {
      try {
        return await clickhouse.rows(query, params, options);
      } catch (cause) {
        if (!isClickHouseUnavailable(cause)) throw cause;
        throw new AppError('STORE_UNAVAILABLE', 'ClickHouse did not answer', { retryable: true, cause });
      }
    },
  };
}
