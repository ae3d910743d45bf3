import type { ClickHouse } from '../infra/clickhouse/client.ts';
import type { Sql } from '../infra/postgres/client.ts';
import { apiKeyRoutes } from './accounts/api-key-routes.ts';
import { sessionRoutes } from './accounts/session-routes.ts';
import { balanceRoutes } from './balances/routes.ts';
import type { CommandBus } from './commands.ts';
import { indexerRoutes } from './indexer/routes.ts';
import type { PasswordChecker } from './passwords.ts';
import { createPriceReader } from './prices/reader.ts';
import { priceRoutes } from './prices/routes.ts';
import type { RefreshBus } from './refresh.ts';
import type { Route } from './route.ts';
import type { Throttle } from './throttle.ts';
import { tokenRoutes } from './tokens/routes.ts';
import { transferRoutes } from './transfers/routes.ts';

/** What routes are made from. */
export interface RouteDeps {
  /** May only SELECT. */
  readonly pool: Sql;
  /** May only read. */
  readonly clickhouse: ClickHouse;
  readonly commands: CommandBus;
  readonly refreshes: RefreshBus;
  readonly passwords: PasswordChecker;
  readonly loginThrottle: Throttle;
  readonly secretKey: Buffer;
  readonly sessionHours: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Every route of the contract that is served. */
export function apiRoutes(deps: RouteDeps): Route[] {
  return [
    ...sessionRoutes({ ...deps, throttle: deps.loginThrottle }),
    ...apiKeyRoutes(deps),
    ...transferRoutes(deps),
    ...balanceRoutes({ ...deps, prices: createPriceReader(deps.pool) }),
    ...priceRoutes(deps),
    ...tokenRoutes(deps),
    ...indexerRoutes(deps),
  ];
}
