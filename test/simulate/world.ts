import { Registry } from 'prom-client';

import { startIngester } from '../../pipeline/ingest/ingest.ts';
import type { Ingester } from '../../pipeline/ingest/ingest.ts';
import { createIngestMetrics } from '../../pipeline/ingest/metrics.ts';
import type {
  Fence,
  IngestNode,
  IngestSettings,
  IngestStore,
  ReadPublishedBlock,
} from '../../pipeline/ingest/ports.ts';
import { createBlockLog } from '../../pipeline/ingest/reconcile/block-log.ts';
import { chainProjections } from '../../projections/index.ts';
import { assertSkipped, replayTargets } from '../../projections/engine/rebuild/replay.ts';
import type { ReplayPorts } from '../../projections/engine/rebuild/replay.ts';
import type { ClickHouseProjection } from '../../projections/define.ts';
import { AppError } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { TokenStandard } from '../../schemas/messages/common.ts';
import { partitionOfHeight, topics } from '../../schemas/topics.ts';
import { COIN } from '../support/chain-messages.ts';
import { createSimChain, fixedStandards } from './chain.ts';
import { createSimStore } from './ingest-store.ts';
import { createSimNode, createSimStandards } from './node.ts';
import type { SimProcess } from './process.ts';
import { createStage, log, metrics } from './stage.ts';
import type { Running, StageOptions } from './stage.ts';

const ingestMetrics = createIngestMetrics(new Registry());

export type SimWorld = ReturnType<typeof createWorld>;

/** Methods whose first argument is a fence that they check. */
const fencedMethods: ReadonlySet<keyof IngestStore> = new Set<keyof IngestStore>([
  'chunk',
  'renew',
  'reserveSeq',
  'plan',
  'moveCursor',
  'finish',
  'record',
  'markForRevert',
  'deleteReverted',
  'setFinal',
  'postponeRepair',
  'planRepair',
  'finishRepair',
]);

function isFence(value: unknown): value is Fence {
  return typeof value === 'object' && value !== null && 'epoch' in value && 'name' in value;
}

/**
 * One installation on virtual time: a simulated node, the real ingester, a simulated log, and the real projections on
 * simulated tables. `base` is the chain's first height, so that it may span two partitions.
 */
export function createWorld(options: StageOptions & { readonly base?: number; readonly blocks?: number }) {
  const stage = createStage(options);
  const { random, clock, faultRates, count, trace, broker, clickhouse, state } = stage;
  const base = options.base ?? 0;
  const chain = createSimChain(random, count, base, options.blocks ?? 20 + random.below(20));
  const store = createSimStore(() => clock.now());
  /** The current standard of `COIN`. */
  const coin: { standard: TokenStandard } = { standard: 'unknown' };
  const standardOf = (contract: Felt): TokenStandard =>
    contract === COIN ? coin.standard : (fixedStandards.get(contract) ?? 'unknown');

  /** As infra/bin/roles/block-reader.ts: waits for the index to reach the end of the partition, then reads the indexed offset. */
  const readPublishedBlock = async (
    height: number,
    highs: Map<number, number>,
  ): ReturnType<ReadPublishedBlock> => {
    const partition = partitionOfHeight(height);
    const next = state.checkpoints(state.served('indexed-blocks')).get(partition) ?? 0;
    const high = highs.get(partition) ?? broker.read(topics.chainBlocks, partition).length;
    highs.set(partition, high);
    if (next < high) throw new AppError('STORE_UNAVAILABLE', 'the index lags', { retryable: true });
    const row = stage.servedTable('indexed_blocks').get(String(0xffff_ffff - height));
    if (row === undefined || row['is_deleted'] === 1) return null;
    const there = broker.read(topics.chainBlocks, Number(row['log_partition']))[Number(row['log_offset'])];
    const message = topics.chainBlocks.schema.parse(JSON.parse(there?.value.toString() ?? ''));
    if (message.type === 'block.accepted' && message.block.height === height) return message;
    throw new AppError('MESSAGE_INVALID', `block ${height} is not at its indexed offset`);
  };

  /** The store of one process. As createStatements, it refuses a chunk whose revision is lower than the process knows. */
  const storeOf = (own: SimProcess): IngestStore => {
    const known = new Map<string, number>();
    return new Proxy<IngestStore>(store, {
      get(target, name: keyof IngestStore) {
        const method: (...args: never[]) => Promise<unknown> = target[name];
        return async (...args: never[]) => {
          const fence: unknown = args[0];
          if (!fencedMethods.has(name) || !isFence(fence))
            return await own.call('store', name, () => method(...args));
          const lease = `${fence.name} ${fence.epoch}`;
          const [result, revision] = await own.call('store', name, async () => {
            store.revision(fence, known.get(lease) ?? 0);
            return [await method(...args), store.revision(fence, 0)] as const;
          });
          known.set(lease, Math.max(revision, known.get(lease) ?? 0));
          return result;
        };
      },
    });
  };

  const start = ({
    node = {},
    settings = {},
  }: { node?: Partial<IngestNode>; settings?: Partial<IngestSettings> } = {}): Running &
    Pick<Ingester, 'attempted'> => {
    const own = stage.newProcess('ingest');
    const kafka = broker.client(own);
    const ingester = startIngester({
      node: { ...createSimNode({ chain, random, faultRates, count }, own), ...node },
      store: storeOf(own),
      subscribeToHeads: null,
      publisher: kafka.publisher(),
      checks: { published: async () => {}, reverted: async () => {} },
      standards: createSimStandards(standardOf, own),
      createBlockReader: () => {
        const highs = new Map<number, number>();
        return (height) =>
          own.call('clickhouse', 'readPublishedBlock', () => readPublishedBlock(height, highs));
      },
      blockLog: createBlockLog(kafka),
      clock: own.clock,
      log,
      metrics: ingestMetrics,
      settings: {
        indexFrom: base,
        backfillChunkBlocks: 7,
        backfillConcurrency: 2,
        prefetchBytes: 5000,
        prefetchConcurrency: 4,
        headPollMs: 200,
        l1PollMs: 500,
        stallMs: 60_000,
        headStallMs: 0,
        leaseMs: 5000,
        holder: own.name,
        ...settings,
      },
    });
    ingester.done.catch((error: unknown) => stage.ended(own, error));
    return { process: own, attempted: ingester.attempted, stop: () => ingester.stop() };
  };

  /** No served table may be written while builds are compared and swapped. */
  const assertQuiet = (when: string): void => {
    const served = new Set(chainProjections.flatMap(({ name }) => Object.values(state.served(name).names)));
    for (const { process, table } of clickhouse.writesInFlight()) {
      // A frozen process that lost its lock may still have writes in flight.
      if (served.has(table) && !process.wasFrozen())
        stage.violations.push(`${process.name} writes ${table} ${when}`);
    }
  };

  /** As the rebuild command: shadow builds catch up with the served builds, then replace them. */
  const rebuild = (projections: readonly ClickHouseProjection[]): Running => {
    const own = stage.newProcess('rebuild');
    const stopping = new AbortController();
    const port = state.port(own);
    const ports: Omit<ReplayPorts, 'onPoison'> = {
      kafka: broker.client(own),
      clickhouse: clickhouse.client(own),
      state: port,
      clock: own.clock,
      log,
      metrics,
      signal: stopping.signal,
    };
    const run = async (): Promise<void> => {
      const shadows = await own.call('state', 'openShadowBuild', async () =>
        projections.map((projection) => ({ projection, build: state.openShadowBuild(projection) })),
      );
      const catchUp = async (): Promise<void> => {
        for (const target of shadows) {
          const goal = state.checkpoints(state.served(target.projection.name));
          const onPoison: ReplayPorts['onPoison'] = (poison) => assertSkipped(port, [target.build], poison);
          await replayTargets({ ...ports, onPoison }, [target], goal, () => {});
        }
      };
      await catchUp();
      await state.withSwapLock(own, async (swapBuilds) => {
        assertQuiet('when a swap begins');
        await catchUp();
        if (!own.wasFrozen()) assertQuiet('when a swap ends');
        trace(`${own.name} swaps`);
        swapBuilds(shadows.map(({ build }) => build));
      });
      own.kill();
    };
    run().catch((error: unknown) => stage.ended(own, error, ['MESSAGE_INVALID', 'CHECKPOINT_CONFLICT']));
    return {
      process: own,
      stop: async () => stopping.abort(new AppError('CONFLICT', 'stopped', { retryable: true })),
    };
  };

  /** Copies all of PostgreSQL. The result sets it back, as a fail-over that loses all transactions since. */
  const snapshotPostgres = (): (() => void) => {
    const restores = [store.snapshot(), state.snapshot()];
    return () => restores.forEach((restore) => restore());
  };

  return { ...stage, chain, store, coin, standardOf, startIngester: start, rebuild, snapshotPostgres };
}
