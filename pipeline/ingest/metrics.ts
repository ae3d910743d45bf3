import { Counter, Gauge, Histogram } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';
import type { IngestMetrics } from './ports.ts';

export function createIngestMetrics(registry: Registry): IngestMetrics {
  const registers = [registry];
  const counter = (name: string, help: string, labelNames: string[] = []) =>
    new Counter({ name, help, labelNames, registers });
  const gauge = (name: string, help: string, labelNames: string[] = []) =>
    new Gauge({ name, help, labelNames, registers });
  const blocks = counter('tds_ingest_blocks_total', 'Blocks published as accepted', ['chunk']);
  const events = counter('tds_ingest_events_total', 'Events in blocks published as accepted', ['chunk']);
  const reverts = counter('tds_ingest_reverted_blocks_total', 'Blocks published as reverted', ['chunk']);
  const repairs = counter(
    'tds_ingest_repaired_blocks_total',
    'Blocks reverted and published again by a repair',
  );
  const malformed = counter('tds_ingest_quarantined_events_total', 'Malformed token events quarantined');
  const failures = counter('tds_ingest_failures_total', 'Failed steps of a chunk writer', ['chunk', 'code']);
  const cursor = gauge('tds_ingest_cursor', 'Next height to index in a chunk', ['chunk']);
  const head = gauge('tds_ingest_head', "Height of the node's newest block");
  const l1 = gauge('tds_ingest_l1', 'Height accepted on L1');
  const stalled = gauge('tds_ingest_stalled', '1 while a chunk with work to do makes no progress', ['chunk']);
  const depth = new Histogram({
    name: 'tds_ingest_reorg_depth',
    help: 'Blocks reverted by one reorg',
    buckets: [1, 2, 5, 10, 50, 200, 1000, 5000],
    registers,
  });
  const seconds = new Histogram({
    name: 'tds_ingest_publish_seconds',
    help: "Seconds from the first sight of a head to Kafka's acknowledgement of its block",
    buckets: [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5],
    registers,
  });
  return {
    accepted(chunk, blockCount, eventCount) {
      blocks.inc({ chunk }, blockCount);
      events.inc({ chunk }, eventCount);
    },
    reverted: (chunk, count) => reverts.inc({ chunk }, count),
    reorg: (count) => depth.observe(count),
    repaired: (count) => repairs.inc(count),
    quarantined: (count) => malformed.inc(count),
    failed: (chunk, code) => failures.inc({ chunk, code }),
    cursor: (chunk, height) => cursor.set({ chunk }, height),
    head: (height) => head.set(height),
    l1: (height) => l1.set(height),
    stalled: (chunk, yes) => stalled.set({ chunk }, yes ? 1 : 0),
    published: (ms) => seconds.observe(ms / 1000),
  };
}
