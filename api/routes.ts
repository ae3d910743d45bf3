import type { ObjectStore } from '../infra/object-store/store.ts';
import type { Sql } from '../infra/postgres/client.ts';
import { accountStatsRoute } from './analytics/account-routes.ts';
import { holdersRoute } from './analytics/holder-routes.ts';
import { statsRoutes } from './analytics/stats-routes.ts';
import { apiKeyRoutes } from './accounts/api-key-routes.ts';
import { sessionRoutes } from './accounts/session-routes.ts';
import { verificationRoutes } from './admin/verification-routes.ts';
import { historyRoutes } from './admin/history-routes.ts';
import { operationRoutes } from './admin/operation-routes.ts';
import { pipelineRoutes } from './admin/pipeline-routes.ts';
import type { PipelineRouteDeps } from './admin/pipeline-routes.ts';
import { projectionRoutes } from './admin/projection-routes.ts';
import { quarantineRoutes } from './admin/quarantine-routes.ts';
import type { AdEvents } from './ads/events.ts';
import { adRoutes } from './ads/routes.ts';
import { createBalanceDeps } from './balances/reading.ts';
import { balanceRoutes } from './balances/routes.ts';
import { classHashRoutes } from './class-hashes/routes.ts';
import type { CommandsFor } from './commands/command-queue.ts';
import { dappRoutes } from './dapps/routes.ts';
import { reportRoutes } from './domains/report-routes.ts';
import { domainRoutes } from './domains/routes.ts';
import { exportFileRoutes } from './export/file-routes.ts';
import { exportRoutes } from './export/routes.ts';
import type { ExportRecords } from './export/records.ts';
import { blockRoute } from './indexer/block-routes.ts';
import { indexerRoutes } from './indexer/routes.ts';
import type { LoginAttempts } from './limits/login-attempts.ts';
import { nftMetadataRoutes } from './nft/metadata.ts';
import { nftOwnershipRoutes } from './nft/ownership.ts';
import type { PasswordChecker } from './auth/passwords.ts';
import { portfolioRoutes } from './portfolio/routes.ts';
import { pastPriceRoutes } from './prices/past.ts';
import { priceRoutes } from './prices/routes.ts';
import type { Sealing } from '../infra/sealing.ts';
import type { RefreshBus } from './commands/refresh.ts';
import type { Route } from './http/route.ts';
import { streamRoutes } from './stream/routes.ts';
import type { StreamRouteDeps } from './stream/routes.ts';
import type { ByteBudgets } from './limits/byte-budgets.ts';
import { syncRoutes } from './sync/routes.ts';
import { tokenRoutes } from './tokens/routes.ts';
import { transferRoutes } from './transfers/routes.ts';
import { publicVerificationRoute } from './verification/routes.ts';
import { walletRoutes } from './wallets/routes.ts';
import { deliveryRoutes } from './webhooks/delivery-routes.ts';
import type { CheckUrl } from './webhooks/url-checks.ts';
import { webhookRoutes } from './webhooks/routes.ts';

/** Dependencies of the routes. */
export interface RouteDeps extends StreamRouteDeps, PipelineRouteDeps {
  /** Read-only, for what requests share: their handlers have one whose statements wait their turn. */
  readonly pool: Sql;
  readonly commandsFor: CommandsFor;
  readonly exports: ExportRecords;
  readonly refreshes: RefreshBus;
  readonly adEvents: AdEvents;
  readonly passwords: PasswordChecker;
  readonly logins: LoginAttempts;
  readonly secretKey: Buffer;
  readonly sealing: Sealing;
  readonly checkUrl: CheckUrl;
  /** Base URL of the IPFS gateway in answers. */
  readonly ipfsGateway: string;
  /** What `tds export build` has written; null: none are served. */
  readonly exportFiles: ObjectStore | null;
  readonly syncCallsPerMinute: number;
  readonly syncBytesPerHour: number;
  readonly byteBudgets: ByteBudgets;
  readonly sessionHours: number;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** Every route of the contract. */
export function apiRoutes(deps: RouteDeps): Route[] {
  const reading = createBalanceDeps(deps);
  return [
    ...sessionRoutes(deps),
    ...apiKeyRoutes(deps),
    ...transferRoutes(deps),
    ...streamRoutes(deps),
    ...exportRoutes(deps),
    ...exportFileRoutes(deps.exportFiles),
    ...balanceRoutes({ ...deps, reading }),
    ...portfolioRoutes({ ...deps, reading }),
    ...priceRoutes(deps),
    ...pastPriceRoutes(deps),
    ...tokenRoutes(),
    holdersRoute(deps),
    ...statsRoutes(deps),
    accountStatsRoute(deps),
    ...nftMetadataRoutes(deps),
    ...nftOwnershipRoutes(deps),
    ...indexerRoutes(deps),
    publicVerificationRoute(deps),
    blockRoute(deps),
    ...syncRoutes(deps),
    ...webhookRoutes(deps),
    ...deliveryRoutes(deps),
    ...dappRoutes(),
    ...adRoutes(deps),
    ...classHashRoutes(),
    ...walletRoutes(deps),
    ...domainRoutes(deps),
    ...reportRoutes(deps),
    ...pipelineRoutes(deps),
    ...projectionRoutes(deps),
    ...quarantineRoutes(deps),
    ...historyRoutes(deps),
    ...verificationRoutes(deps),
    ...operationRoutes(deps),
  ];
}
