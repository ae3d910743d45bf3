import { metricsIn } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

/** What a block is compared with. */
export const COMMITMENTS = ['block_hash', 'events', 'transactions', 'receipts'] as const;

export type IngestMetrics = ReturnType<typeof createIngestMetrics>;

export function createIngestMetrics(registry: Registry) {
  const { counter, gauge, histogram } = metricsIn(registry);
  const commitmentChecks = counter(
    'tds_ingest_commitment_checks_total',
    'Fetched blocks by the comparison with their hash and the commitments in their header',
    ['commitment', 'outcome'],
  );
  // From 0 on, so that an alert sees the first of them as an increase.
  for (const commitment of COMMITMENTS)
    for (const outcome of ['mismatched', 'refused']) commitmentChecks.inc({ commitment, outcome }, 0);
  return {
    accepted: counter('tds_ingest_blocks_total', 'Blocks published as accepted', ['chunk']),
    events: counter('tds_ingest_events_total', 'Events in blocks published as accepted', ['chunk']),
    reverted: counter('tds_ingest_reverted_blocks_total', 'Blocks published as reverted', ['chunk']),
    repaired: counter('tds_ingest_repaired_blocks_total', 'Blocks reverted and published again by a repair'),
    quarantined: counter('tds_ingest_quarantined_events_total', 'Malformed token events quarantined'),
    commitmentChecks,
    failures: counter('tds_ingest_failures_total', 'Failed steps of a chunk writer', ['chunk', 'code']),
    cursor: gauge('tds_ingest_cursor', 'Next height to index in a chunk', ['chunk']),
    head: gauge('tds_ingest_head', "Height of the node's newest block"),
    l1: gauge('tds_ingest_l1', 'Height accepted on L1'),
    stalled: gauge('tds_ingest_stalled', '1 while a chunk with work to do makes no progress', ['chunk']),
    reorgDepth: histogram(
      'tds_ingest_reorg_depth',
      'Blocks reverted by one reorg',
      [1, 2, 5, 10, 50, 200, 1000, 5000],
    ),
    publishSeconds: histogram(
      'tds_ingest_publish_seconds',
      "Seconds from the first sight of a head to Kafka's acknowledgement of its block",
      [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5],
    ),
  };
}
