import { chainStatusRow } from '../../../projections/chain-status/queries.ts';
import { chunkTotals } from '../../../projections/indexed-blocks/queries.ts';
import { quarantineCounts } from '../../../projections/quarantine/queries.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import type { Kafka } from '../../kafka/client.ts';
import { Gauge } from '../../metrics.ts';
import type { Registry } from '../../metrics.ts';
import type { Sql } from '../../postgres/client.ts';
import { roleStates } from '../../health/role-states.ts';
import { projectionHalts, projectionLags, raisedAlarms, repairsLeft } from '../../health/service-health.ts';

/**
 * What the API's /metrics says of the whole service, read from the stores at each scrape: one target tells whether the
 * service is behind. The roles serve figures of their own process on their own ports.
 */
export function serviceMetrics(deps: {
  registry: Registry;
  pool: Sql;
  clickhouse: ClickHouse;
  kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>;
  stallSeconds: number;
  servedBuilds: () => Promise<ServedBuilds>;
}): () => Promise<{ contentType: string; text: string }> {
  const { registry, pool, clickhouse, kafka } = deps;
  const gauge = <L extends string>(name: string, help: string, labelNames: readonly L[] = []): Gauge<L> =>
    new Gauge({ name, help, labelNames, registers: [registry] });
  const lag = gauge('tds_projection_behind', 'Messages that a projection has not finished with', [
    'projection',
    'topic',
    'partition',
  ]);
  const nodeHead = gauge('tds_node_head_height', 'Newest height that the node has served');
  const l1 = gauge('tds_l1_accepted_height', 'Newest height accepted on L1');
  const indexed = gauge('tds_chunk_blocks', 'Blocks that can be queried, by chunk', ['chunk']);
  const transfers = gauge('tds_chunk_transfers', 'Transfers that can be queried, by chunk', ['chunk']);
  const quarantined = gauge(
    'tds_quarantine_open',
    'Events and messages that were not understood, by reason',
    ['kind', 'reason'],
  );
  const halted = gauge('tds_projection_halts', 'Partitions halted by a message that cannot be read', [
    'projection',
    'topic',
    'partition',
  ]);
  const alarms = gauge('tds_alarms', 'Alarms that are raised', ['name']);
  const repairs = gauge('tds_repairs_pending', 'Blocks that are to be repaired and are not yet');
  const roles = gauge('tds_role_state', '1 for the state that a role is in: working, stalled or missing', [
    'name',
    'state',
  ]);

  const refresh = async (): Promise<void> => {
    const served = await deps.servedBuilds();
    const [{ lags }, chain, chunks, quarantine, halts, raised, states, { pending }] = await Promise.all([
      projectionLags(pool, kafka),
      chainStatusRow(pool, served.schema('chain-status')),
      chunkTotals(clickhouse, served),
      quarantineCounts(pool, served.schema('quarantine')),
      projectionHalts(pool),
      raisedAlarms(pool),
      roleStates(pool, kafka, deps.stallSeconds),
      repairsLeft(pool),
    ]);
    for (const each of [lag, indexed, transfers, quarantined, halted, alarms, roles]) each.reset();
    for (const { projection, topic, partition, lag: behind } of lags) {
      if (behind !== null) lag.set({ projection, topic, partition: String(partition) }, behind);
    }
    if (chain.head_height !== null) nodeHead.set(chain.head_height);
    if (chain.l1_height !== null) l1.set(chain.l1_height);
    for (const { chunk, blocks, transfers: count } of chunks) {
      indexed.set({ chunk }, blocks);
      transfers.set({ chunk }, count);
    }
    for (const { kind, reason, count } of quarantine) quarantined.set({ kind, reason }, count);
    for (const { projection, topic, partition } of halts) {
      halted.set({ projection, topic, partition: String(partition) }, 1);
    }
    repairs.set(pending);
    for (const { name } of raised) alarms.set({ name }, 1);
    for (const { name, state } of states) roles.set({ name, state }, 1);
  };

  return async () => {
    // A store that is away must not hide the figures of this process.
    await refresh().catch(() => {});
    return { contentType: registry.contentType, text: await registry.metrics() };
  };
}
