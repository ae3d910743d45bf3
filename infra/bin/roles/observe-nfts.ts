import { createEgress } from '../../../pipeline/egress/egress.ts';
import type { Node } from '../../../pipeline/node/types.ts';
import type { IsBackfilling } from '../../../pipeline/observe/backfill.ts';
import type { BlockFeed } from '../../../pipeline/observe/block-feed.ts';
import type { ObserverMetrics } from '../../../pipeline/observe/metrics.ts';
import { runNftObserver } from '../../../pipeline/observe/nft/observer.ts';
import { nftsAfter } from '../../../projections/nft-transfers/queries.ts';
import { servedSchema } from '../../../projections/served.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import type { Kafka } from '../../kafka/client.ts';
import { parseNetwork } from '../../networks.ts';
import type { Pool } from '../../postgres/client.ts';
import { ownPorts } from './egress.ts';
import type { RoleContext } from '../role.ts';
import { createServedReader } from './served-reads.ts';

/** The operator chose the gateway, so it may be on networks that URLs of NFTs may not reach. */
const ALL_NETWORKS = ['0.0.0.0/0', '::/0'].flatMap((text) => parseNetwork(text) ?? []);

/** Starts the observer of NFT metadata; stopped with the role. */
export async function startNftObserver(
  { config, log, metrics, releasers, signal, fail }: RoleContext,
  stores: {
    readonly kafka: Kafka;
    readonly pool: Pool;
    readonly clickhouse: ClickHouse;
    readonly node: Node;
    readonly blocks: BlockFeed;
    readonly isBackfilling: IsBackfilling;
    readonly observers: ObserverMetrics;
  },
): Promise<void> {
  const { kafka, pool, clickhouse, node, blocks, isBackfilling, observers } = stores;
  const readServed = createServedReader(pool);
  const common = { dnsServers: config.egressDnsServers, connectionsPerHost: config.nftConcurrency };
  const egress = createEgress({
    ...common,
    allowNetworks: config.nftAllowNetworks,
    ownPorts: ownPorts(config),
  });
  releasers.push('egress of metadata', () => egress.close());
  const gatewayEgress = createEgress({ ...common, allowNetworks: ALL_NETWORKS, ownPorts: [] });
  releasers.push('egress of the gateway', () => gatewayEgress.close());
  const observer = await runNftObserver({
    config,
    node,
    pool,
    kafka,
    blocks,
    isBackfilling,
    egress,
    gatewayEgress,
    schema: () => servedSchema(pool, 'nft-metadata'),
    nftsAfter: async (after, limit) =>
      (await readServed((served) => nftsAfter(clickhouse, served, after, limit))) ?? [],
    log,
    observers,
    metrics,
    signal,
  });
  observer.done.catch(fail);
  releasers.push('NFT observer', () => observer.stop());
}
