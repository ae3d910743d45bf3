import type { Node } from '../../../pipeline/node/types.ts';
import { runBalanceObserver } from '../../../pipeline/observe/balances/observer.ts';
import { movedWithin } from '../../../projections/account-ledger/queries.ts';
import { pairKey } from '../../../projections/balances/queries.ts';
import { finalHeight } from '../../../projections/chain-status/queries.ts';
import { newestBlock } from '../../../projections/indexed-blocks/queries.ts';
import type { IndexedBlock } from '../../../projections/indexed-blocks/queries.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import type { Kafka } from '../../kafka/client.ts';
import type { Pool } from '../../postgres/client.ts';
import type { RoleContext } from '../role.ts';
import { createServedReader } from './served-reads.ts';

/** The newest block is cached this long, while the tables of blocks are unchanged. */
const NEWEST_BLOCK_CACHE_MS = 1000;

/** Starts the observer of balances; stopped with the role. */
export async function startBalanceObserver(
  { config, log, metrics, releasers, signal, fail }: RoleContext,
  { kafka, pool, clickhouse, node }: { kafka: Kafka; pool: Pool; clickhouse: ClickHouse; node: Node },
): Promise<void> {
  const readServed = createServedReader(pool);
  let newest: { readonly state: string; readonly until: number; readonly block: IndexedBlock } | null = null;
  const observer = await runBalanceObserver({
    config,
    node,
    pool,
    kafka,
    log,
    metrics,
    signal,
    newestBlock: () =>
      readServed(async (served) => {
        const { chainState: state } = served;
        if (newest !== null && newest.state === state && Date.now() < newest.until) return newest.block;
        const [until, block] = [Date.now() + NEWEST_BLOCK_CACHE_MS, await newestBlock(clickhouse, served)];
        newest = state === null || block === null ? null : { state, until, block };
        return block;
      }),
    movedPairs: (pairs, upTo) =>
      readServed(async (served) => {
        const spans = pairs.map(({ account, token }) => ({ account, token, after: -1, upTo }));
        const moved = await movedWithin(clickhouse, served, spans);
        return new Set(pairs.filter((_, i) => (moved[i]?.legs ?? 0) > 0).map(pairKey));
      }),
    l1Height: () => readServed(async (served) => await finalHeight(pool, served.schema('chain-status'))),
  });
  observer.done.catch(fail);
  releasers.push('balance observer', () => observer.stop());
}
