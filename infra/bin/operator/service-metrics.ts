import { chainStatusRow } from '../../../projections/chain-status/queries.ts';
import { chunkTotals } from '../../../projections/indexed-blocks/queries.ts';
import { quarantineCounts } from '../../../projections/quarantine/queries.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import { serviceHealth } from '../../health/service-health.ts';
import type { Kafka } from '../../kafka/client.ts';
import { withTimeout } from '../../lifecycle.ts';
import { Gauge } from '../../metrics.ts';
import type { Registry } from '../../metrics.ts';
import type { Sql } from '../../postgres/client.ts';

interface ServiceMetricsDeps {
  readonly registry: Registry;
  readonly pool: Sql;
  readonly clickhouse: ClickHouse;
  readonly kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>;
  readonly stallSeconds: number;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  /** Longest wait for the stores; by default half of Prometheus' default time for a scrape. */
  readonly timeoutMs?: number;
}

const TIMEOUT_MS = 5000;

type Read = Awaited<ReturnType<typeof readAll>>;

/** A gauge with one sample for each of some rows: the value of a field, or 1. A value that is null is left out. */
const family = <K extends keyof Read>(
  name: string,
  help: string,
  rows: K,
  labelNames: readonly (keyof Read[K][number] & string)[],
  value?: keyof Read[K][number] & string,
) => ({ name, help, rows, labelNames, value });

const PARTITION = ['projection', 'topic', 'partition'] as const;

const FAMILIES = [
  family('tds_projection_behind', 'Messages that a projection has not processed', 'lags', PARTITION, 'lag'),
  family('tds_node_head_height', 'Newest height that the node has served', 'chain', [], 'head_height'),
  family('tds_l1_accepted_height', 'Newest height accepted on L1', 'chain', [], 'l1_height'),
  family('tds_chunk_blocks', 'Blocks that can be queried, by chunk', 'chunks', ['chunk'], 'blocks'),
  family('tds_chunk_transfers', 'Transfers that can be queried, by chunk', 'chunks', ['chunk'], 'transfers'),
  family('tds_quarantine_open', 'Quarantined events and messages', 'quarantine', ['kind', 'reason'], 'count'),
  family('tds_projection_halts', 'Partitions halted by a poison message', 'halts', PARTITION),
  family('tds_alarms', 'Alarms that are raised', 'alarms', ['name']),
  family('tds_log_available', '1 while Kafka answers; 0: lags are unknown', 'log', [], 'available'),
  family('tds_repairs_pending', 'Blocks with a pending repair', 'repairs', [], 'pending'),
  family('tds_role_state', '1 for the state of a role: working, stalled or missing', 'roles', [
    'name',
    'state',
  ]),
];

/**
 * The metrics of the whole service in the API's /metrics, read from the stores at a scrape: one target tells whether the
 * service is behind. The roles serve metrics of their own process on their own ports.
 */
export function serviceMetrics(
  deps: ServiceMetricsDeps,
): () => Promise<{ contentType: string; text: string }> {
  const { registry, timeoutMs = TIMEOUT_MS } = deps;
  const gauges = FAMILIES.map((one) => ({ ...one, gauge: new Gauge({ ...one, registers: [registry] }) }));
  const up = new Gauge({
    name: 'tds_service_metrics_up',
    help: '0 while PostgreSQL or ClickHouse is unavailable, and the metrics of the whole service with it',
    registers: [registry],
  });
  const refresh = async (): Promise<void> => {
    // While one of the two is unavailable or hangs, the metrics of this process are still served.
    const reading = readAll(deps).catch(() => null);
    const read = await withTimeout(reading, timeoutMs, null);
    up.set(read === null ? 0 : 1);
    for (const { gauge, rows, labelNames, value } of gauges) {
      gauge.reset();
      if (read === null) continue;
      for (const row of read[rows]) {
        const fields = new Map<string, unknown>(Object.entries(row));
        const sample = value === undefined ? 1 : fields.get(value);
        const labels = Object.fromEntries(labelNames.map((label) => [label, String(fields.get(label))]));
        if (typeof sample === 'number') gauge.set(labels, sample);
      }
    }
  };
  return async () => {
    await refresh();
    return { contentType: registry.contentType, text: await registry.metrics() };
  };
}

async function readAll({ pool, clickhouse, kafka, stallSeconds, servedBuilds }: ServiceMetricsDeps) {
  const served = await servedBuilds();
  const [{ lags, isLogAvailable, halts, alarms, roles, repairs }, chain, chunks, quarantine] =
    await Promise.all([
      serviceHealth(pool, kafka, stallSeconds),
      chainStatusRow(pool, served.schema('chain-status')),
      chunkTotals(clickhouse, served),
      quarantineCounts(pool, served.schema('quarantine')),
    ]);
  const log = [{ available: isLogAvailable ? 1 : 0 }];
  return { lags, log, halts, alarms, roles, repairs: [repairs], chain: [chain], chunks, quarantine };
}
