import { accountFeed } from './account-feed/projector.ts';
import { accountLedger } from './account-ledger/projector.ts';
import { accounts } from './accounts/projector.ts';
import { adCounts } from './ad-counts/projector.ts';
import { balances } from './balances/projector.ts';
import { blockEvents } from './block-events/projector.ts';
import { catalogue } from './catalogue/projector.ts';
import { chainStatus } from './chain-status/projector.ts';
import type {
  BlockProjection,
  ClickHouseProjection,
  DeferredProjection,
  PostgresProjection,
  Projection,
} from './define.ts';
import { indexedBlocks } from './indexed-blocks/projector.ts';
import { keyUse } from './key-use/projector.ts';
import { latestPrices } from './latest-prices/projector.ts';
import { nftHoldings } from './nft-holdings/projector.ts';
import { nftMetadata } from './nft-metadata/projector.ts';
import { nftTransfers } from './nft-transfers/projector.ts';
import { periodStats } from './period-stats/projector.ts';
import { prices } from './prices/projector.ts';
import { quarantine } from './quarantine/projector.ts';
import { revertedBlocks } from './reverted-blocks/projector.ts';
import { sync } from './sync/projector.ts';
import { tokenHolders } from './token-holders/projector.ts';
import { tokens } from './tokens/projector.ts';
import { transferCounts } from './transfer-counts/projector.ts';
import { transfers } from './transfers/projector.ts';
import { txIndex } from './tx-index/projector.ts';
import { unmovedBalances } from './unmoved-balances/projector.ts';
import { usage } from './usage/projector.ts';
import { webhooks } from './webhooks/projector.ts';

/** The tables made from `chain.blocks`. Inserts begin in this order: derived ones first. */
export const chainProjections: readonly BlockProjection[] = [
  transferCounts,
  transfers,
  nftTransfers,
  nftHoldings,
  accountFeed,
  accountLedger,
  txIndex,
  revertedBlocks,
  blockEvents,
  indexedBlocks,
];

/** The tables that passes derive from those, beside the batches. */
export const deferredProjections: readonly DeferredProjection[] = [tokenHolders, periodStats];

/** Those of one topic share a consumer. Rebuilt one by one in this order: deferred tables are derived from rebuilt sources. */
export const clickhouseProjections: readonly ClickHouseProjection[] = [
  ...chainProjections,
  ...deferredProjections,
  prices,
  usage,
];

/** Each folds one topic, with its own consumer. */
export const postgresProjections: readonly PostgresProjection<unknown>[] = [
  accounts,
  sync,
  webhooks,
  catalogue,
  tokens,
  chainStatus,
  balances,
  unmovedBalances,
  quarantine,
  latestPrices,
  keyUse,
  nftMetadata,
  adCounts,
];

export const projections: readonly Projection[] = [...clickhouseProjections, ...postgresProjections];
