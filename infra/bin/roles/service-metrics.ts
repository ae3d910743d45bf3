import { chainStatusRow } from '../../../projections/chain-status/queries.ts';
import { chunkTotals } from '../../../projections/indexed-blocks/queries.ts';
import { quarantineCounts } from '../../../projections/quarantine/queries.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import { serviceHealth } from '../../health/service-health.ts';
import type { Kafka } from '../../kafka/client.ts';
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
}

type Sample = readonly [labels: Readonly<Record<string, string | number>>, value: number | null];

/** A gauge, and its samples in what was read from the stores; a null is left out. */
interface Family {
  readonly name: string;
  readonly help: string;
  readonly labelNames?: readonly string[];
  readonly samples: (read: Awaited<ReturnType<typeof readAll>>) => readonly Sample[];
}

const FAMILIES: readonly Family[] = [
  {
    name: 'tds_projection_behind',
    help: 'Messages that a projection has not processed',
    labelNames: ['projection', 'topic', 'partition'],
    samples: ({ lags }) =>
      lags.map(({ projection, topic, partition, lag }) => [{ projection, topic, partition }, lag]),
  },
  {
    name: 'tds_node_head_height',
    help: 'Newest height that the node has served',
    samples: ({ chain }) => [[{}, chain.head_height]],
  },
  {
    name: 'tds_l1_accepted_height',
    help: 'Newest height accepted on L1',
    samples: ({ chain }) => [[{}, chain.l1_height]],
  },
  {
    name: 'tds_chunk_blocks',
    help: 'Blocks that can be queried, by chunk',
    labelNames: ['chunk'],
    samples: ({ chunks }) => chunks.map(({ chunk, blocks }) => [{ chunk }, blocks]),
  },
  {
    name: 'tds_chunk_transfers',
    help: 'Transfers that can be queried, by chunk',
    labelNames: ['chunk'],
    samples: ({ chunks }) => chunks.map(({ chunk, transfers }) => [{ chunk }, transfers]),
  },
  {
    name: 'tds_quarantine_open',
    help: 'Quarantined events and messages, by reason',
    labelNames: ['kind', 'reason'],
    samples: ({ quarantine }) => quarantine.map(({ kind, reason, count }) => [{ kind, reason }, count]),
  },
  {
    name: 'tds_projection_halts',
    help: 'Partitions halted by a message that cannot be parsed',
    labelNames: ['projection', 'topic', 'partition'],
    samples: ({ halts }) =>
      halts.map(({ projection, topic, partition }) => [{ projection, topic, partition }, 1]),
  },
  {
    name: 'tds_alarms',
    help: 'Alarms that are raised',
    labelNames: ['name'],
    samples: ({ alarms }) => alarms.map(({ name }) => [{ name }, 1]),
  },
  {
    name: 'tds_repairs_pending',
    help: 'Blocks with a pending repair',
    samples: ({ repairs }) => [[{}, repairs.pending]],
  },
  {
    name: 'tds_role_state',
    help: '1 for the state that a role is in: working, stalled or missing',
    labelNames: ['name', 'state'],
    samples: ({ roles }) => roles.map(({ name, state }) => [{ name, state }, 1]),
  },
];

/**
 * The metrics of the whole service in the API's /metrics, read from the stores at each scrape: one target tells whether the
 * service is behind. The roles serve metrics of their own process on their own ports.
 */
export function serviceMetrics(
  deps: ServiceMetricsDeps,
): () => Promise<{ contentType: string; text: string }> {
  const { registry } = deps;
  const gauges = FAMILIES.map(({ name, help, labelNames = [], samples }) => ({
    gauge: new Gauge({ name, help, labelNames, registers: [registry] }),
    samples,
  }));
  const refresh = async (): Promise<void> => {
    const read = await readAll(deps);
    for (const { gauge, samples } of gauges) {
      gauge.reset();
      for (const [labels, value] of samples(read)) if (value !== null) gauge.set(labels, value);
    }
  };
  return async () => {
    // While a store is unavailable, the metrics of this process are still served.
    await refresh().catch(() => {});
    return { contentType: registry.contentType, text: await registry.metrics() };
  };
}

async function readAll({ pool, clickhouse, kafka, stallSeconds, servedBuilds }: ServiceMetricsDeps) {
  const served = await servedBuilds();
  const [health, chain, chunks, quarantine] = await Promise.all([
    serviceHealth(pool, kafka, stallSeconds),
    chainStatusRow(pool, served.schema('chain-status')),
    chunkTotals(clickhouse, served),
    quarantineCounts(pool, served.schema('quarantine')),
  ]);
  return { ...health, chain, chunks, quarantine };
}
