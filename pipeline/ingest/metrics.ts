import { Counter, Gauge, Histogram } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export interface IngestMetrics {
  accepted(chunk: string, blocks: number, events: number): void;
  reverted(chunk: string, blocks: number): void;
  /** Fork found: how many blocks are to be reverted. */
  reorg(depth: number): void;
  repaired(blocks: number): void;
  quarantined(events: number): void;
  failed(chunk: string, code: string): void;
  cursor(chunk: string, height: number): void;
  head(height: number): void;
  l1(height: number): void;
  stalled(chunk: string, stalled: boolean): void;
  /** From the head that showed a block to Kafka's acknowledgement. */
  published(ms: number): void;
}

export function createIngestMetrics(registry: Registry): IngestMetrics {
  const counter = (name: string, help: string, labelNames: string[] = []) =>
    new Counter({ name, help, labelNames, registers: [registry] });
  const gauge = (name: string, help: string, labelNames: string[] = []) =>
    new Gauge({ name, help, labelNames, registers: [registry] });
  const blocks = counter('tds_ingest_blocks_total', 'Blocks published as accepted', ['chunk']);
  const events = counter('tds_ingest_events_total', 'Events in blocks published as accepted', ['chunk']);
  const reverts = counter('tds_ingest_reverted_blocks_total', 'Blocks published as reverted', ['chunk']);
  const repairs = counter('tds_ingest_repaired_blocks_total', 'Blocks published again with better knowledge');
  const malformed = counter('tds_ingest_quarantined_events_total', 'Token events that could not be read');
  const failures = counter('tds_ingest_failures_total', 'Failed steps of a chunk', ['chunk', 'code']);
  const cursor = gauge('tds_ingest_cursor', 'Next height of a chunk', ['chunk']);
  const head = gauge('tds_ingest_head', "Height of the node's newest block");
  const l1 = gauge('tds_ingest_l1', 'Height accepted on L1');
  const stalled = gauge('tds_ingest_stalled', '1 while a chunk makes no progress though there is work', [
    'chunk',
  ]);
  const depth = new Histogram({
    name: 'tds_ingest_reorg_depth',
    help: 'Blocks reverted by one reorg',
    buckets: [1, 2, 5, 10, 50, 200, 1000, 5000],
    registers: [registry],
  });
  const seconds = new Histogram({
    name: 'tds_ingest_publish_seconds',
    help: "From the head that showed a block to Kafka's acknowledgement",
    buckets: [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5],
    registers: [registry],
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
