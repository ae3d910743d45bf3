import { createKafka } from '../../infra/kafka/client.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { createSimulatedNode } from './starknet/node.ts';
import type { NodeOptions, SimulatedNode } from './starknet/node.ts';
import { systemClock } from '../../infra/clock.ts';
import { startCommitmentThread } from '../../infra/commitment-thread.ts';
import { sleep } from '../../infra/lifecycle.ts';
import { createLogger } from '../../infra/log.ts';
import { createMetrics } from '../../infra/metrics.ts';
import { createPool } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { migrate } from '../../infra/postgres/migrate.ts';
import { withBlockChecks } from '../../pipeline/ingest/block-checks.ts';
import { createCommitmentChecks } from '../../pipeline/ingest/commitments.ts';
import { createCommitmentStore } from '../../pipeline/ingest/store/commitments.ts';
import { startIngester } from '../../pipeline/ingest/ingest.ts';
import type { Ingester } from '../../pipeline/ingest/ingest.ts';
import { createIngestMetrics } from '../../pipeline/ingest/metrics.ts';
import type { IngestDeps, IngestSettings } from '../../pipeline/ingest/ports.ts';
import { createStandards } from '../../pipeline/ingest/contracts/standards.ts';
import { createBlockLog } from '../../pipeline/ingest/reconcile/block-log.ts';
import { createIngestStore } from '../../pipeline/ingest/store/store.ts';
import { createNodeMetrics } from '../../pipeline/node/metrics.ts';
import { createNode } from '../../pipeline/node/node.ts';
import { topics } from '../../schemas/topics.ts';
import type { Topic } from '../../schemas/topics.ts';
import { foldLog } from './fold-log.ts';
import { isolated } from './isolation.ts';
import { messagesOf } from './topic.ts';

/** A simulated node, real PostgreSQL and Kafka, and in-process ingesters that a test starts and kills. */
export interface IngestWorld {
  readonly node: SimulatedNode;
  readonly pool: Pool;
  readonly kafka: Kafka;
  /** Parts can be replaced, to make them fail at a chosen moment. */
  start(overrides?: Overrides): Ingester;
  /** All messages of a topic, by partition and offset. */
  read<M>(topic: Topic<M>): Promise<M[]>;
  /** Waits until the live chunk's cursor has passed a height. */
  indexed(height: number): Promise<void>;
  close(): Promise<void>;
}

export interface Overrides {
  readonly settings?: Partial<IngestSettings>;
  readonly deps?: (deps: IngestDeps) => Partial<IngestDeps>;
}

export async function ingestWorld(options: NodeOptions): Promise<IngestWorld> {
  const own = await isolated();
  const log = createLogger('ingest-test', process.env['TEST_LOG'] ?? 'silent');
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test-ingest', max: 12 });
  await migrate(pool);
  const kafka = createKafka({
    brokers: [own.env.KAFKA_BROKERS],
    clientId: 'test-ingest',
    topicPrefix: own.env.KAFKA_TOPIC_PREFIX,
    log,
  });
  await kafka.ensureTopics();
  const node = await createSimulatedNode({ manual: true, l1: null, ...options });
  const thread = startCommitmentThread();
  const started: (() => Promise<void>)[] = [];
  let processes = 0;

  return {
    node,
    pool,
    kafka,
    start({ settings = {}, deps: replace }: Overrides = {}) {
      processes += 1;
      const registry = createMetrics('test');
      const client = createNode({
        url: node.url,
        timeoutMs: 2000,
        maxConcurrent: 16,
        attempts: 3,
        metrics: createNodeMetrics(registry),
      });
      const publisher = kafka.publisher();
      const metrics = createIngestMetrics(registry);
      const store = createCommitmentStore(pool);
      const checks = createCommitmentChecks({ store, metrics, clock: systemClock, log });
      const deps: IngestDeps = {
        node: withBlockChecks({
          node: client,
          checks,
          mode: 'all',
          incomplete: 'refuse',
          compute: thread.compute,
          clock: systemClock,
          log,
        }),
        subscribeToHeads: null,
        store: createIngestStore(pool),
        publisher,
        checks,
        standards: createStandards({ node: client, pool, log }),
        createBlockReader: () => async () => null,
        blockLog: createBlockLog(kafka),
        clock: systemClock,
        log,
        metrics,
        settings: {
          indexFrom: 0,
          backfillChunkBlocks: 100,
          backfillConcurrency: 2,
          prefetchBytes: 8_000_000,
          prefetchConcurrency: 8,
          headPollMs: 25,
          l1PollMs: 100,
          stallMs: 60_000,
          headStallMs: 0,
          leaseMs: 1500,
          holder: `test-${processes}`,
          ...settings,
        },
      };
      const ingester = startIngester({ ...deps, ...replace?.(deps) });
      const stop = async (): Promise<void> => {
        await ingester.stop();
        await checks.flush();
        await publisher.close();
        await client.close();
      };
      started.push(stop);
      return { ...ingester, stop };
    },
    read: (topic) => messagesOf(kafka, topic),
    async indexed(height) {
      await until(`height ${height} indexed`, async () => {
        const { rows } = await pool.query<{ cursor: number }>(
          "SELECT cursor FROM tds.chunks WHERE name = 'live'",
        );
        return (rows[0]?.cursor ?? -1) > height;
      });
    },
    async close() {
      // An ingester that a test has killed never resolves.
      await Promise.all(started.map((stop) => Promise.race([stop(), sleep(1000)])));
      await thread.close();
      await node.close();
      await kafka.close();
      await pool.end();
      await own.drop();
    },
  };
}

export async function until(what: string, met: () => Promise<boolean>, timeoutMs = 100_000): Promise<void> {
  for (const end = Date.now() + timeoutMs; !(await met()); await sleep(20)) {
    if (Date.now() > end) throw new Error(`timed out after ${timeoutMs} ms: ${what}`);
  }
}

/** Differences between the log and the node's canonical chain, from a height to its head. */
export async function differences(world: IngestWorld, from = 0): Promise<string[]> {
  const { accepted, breaches } = foldLog(await world.read(topics.chainBlocks));
  const head = world.node.ledger.head();
  for (let height = from; height <= head; height += 1) {
    const truth = world.node.ledger.at(height)?.hash ?? '';
    const found = accepted.get(height);
    if (found === undefined || BigInt(found) !== BigInt(truth))
      breaches.push(`${height}: expected ${truth}, found ${found ?? 'none'}`);
    accepted.delete(height);
  }
  for (const [height, hash] of accepted) breaches.push(`${height}: ${hash} is not canonical`);
  return breaches;
}
