import { accountFeed } from './account-feed/projector.ts';
import { accountLedger } from './account-ledger/projector.ts';
import { accounts } from './accounts/projector.ts';
import { balances } from './balances/projector.ts';
import { chainStatus } from './chain-status/projector.ts';
import type { ClickHouseProjection, PostgresProjection, Projection } from './define.ts';
import { indexedBlocks } from './indexed-blocks/projector.ts';
import { latestPrices } from './latest-prices/projector.ts';
import { nftTransfers } from './nft-transfers/projector.ts';
import { quarantine } from './quarantine/projector.ts';
import { tokens } from './tokens/projector.ts';
import { transferCounts } from './transfer-counts/projector.ts';
import { transfers } from './transfers/projector.ts';
import { txIndex } from './tx-index/projector.ts';

/** The tables made from `chain.blocks`; all of them share one consumer. Inserts begin in this order: derived ones first. */
export const chainProjections: readonly ClickHouseProjection[] = [
  transferCounts,
  transfers,
  nftTransfers,
  accountFeed,
  accountLedger,
  txIndex,
  indexedBlocks,
];

/** Each folds one topic in a consumer of its own. */
export const postgresProjections: readonly PostgresProjection<unknown>[] = [
  accounts,
  tokens,
  chainStatus,
  balances,
  quarantine,
  latestPrices,
];

export const projections: readonly Projection[] = [...chainProjections, ...postgresProjections];
