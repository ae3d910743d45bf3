import { createMetrics } from '../../infra/metrics.ts';
import { createLogger } from '../../infra/log.ts';
import { startIngester } from '../../pipeline/ingest/ingest.ts';
import { createIngestMetrics } from '../../pipeline/ingest/metrics.ts';
import type { IngestDeps, IngestNode, IngestStore } from '../../pipeline/ingest/ports.ts';
import { RpcError, rpcCodes } from '../../pipeline/node/errors.ts';
import { AppError } from '../../schemas/errors.ts';
import { toFelt } from '../../schemas/felt.ts';
import type { BlockBody, ChainBlocksMessage } from '../../schemas/messages/chain-blocks.ts';
import type { TokenStandard } from '../../schemas/messages/common.ts';
import type { QuarantineMessage } from '../../schemas/messages/quarantine.ts';
import { topics } from '../../schemas/topics.ts';
import { createSimChain, headerOf, pointOf } from './sim-chain.ts';
import { createSimClock } from './sim-clock.ts';
import { createSimStore } from './sim-store.ts';
import { seeded } from './transfer-world.ts';

/** How badly things go: each a chance in a thousand, per call. */
export interface Weather {
  /** An answer is lost: the call fails, having worked or not. */
  faults: number;
  /** The process dies at the call: it hears of nothing any more. What it sent may still arrive. */
  kills: number;
  /** The node answers from another chain than the one in force, or from a shorter one. */
  mixedViews: number;
}

type Part = 'node' | 'store' | 'log';

/** The real ingester on virtual time, with a chain, a store and a log in memory, all driven by one seed. */
export function createSimWorld(seed: number) {
  const random = seeded(seed);
  const clock = createSimClock(1_700_000_000_000, () => random.below(1000) / 1000);
  const chain = createSimChain(20 + random.below(20));
  const store = createSimStore(() => clock.now());
  const log: ChainBlocksMessage[] = [];
  const quarantine: QuarantineMessage[] = [];
  const weather: Weather = { faults: 0, kills: 0, mixedViews: 0 };
  const coin = { standard: 'unknown' as TokenStandard };
  const silent = createLogger('sim', process.env['SIM_LOG'] ?? 'silent');
  const metrics = createIngestMetrics(createMetrics('sim'));
  const dead = new Promise<never>(() => {});
  let processes = 0;
  let running: { killed: boolean; stop(): Promise<void> } | null = null;

  const chance = (perThousand: number): boolean => random.below(1000) < perThousand;

  /** One call of one process: takes time, and may fail before, after, or for good. */
  const through = async <T>(process: { killed: boolean }, part: Part, work: () => Promise<T>): Promise<T> => {
    await clock.sleep(1 + random.below(15));
    if (process.killed) return await dead;
    if (chance(weather.kills)) {
      process.killed = true;
      // Half of the calls a process dies in have been sent: they arrive when they arrive.
      if (chance(500))
        void clock
          .sleep(random.below(4000))
          .then(work)
          .catch(() => {});
      return await dead;
    }
    if (world.faulty !== 'all' && part !== world.faulty) return await work();
    if (!chance(weather.faults)) return await work();
    if (chance(500)) await work();
    throw new AppError('STORE_UNAVAILABLE', 'the answer is lost', { retryable: true });
  };

  const makeNode = (process: { killed: boolean }): IngestNode => {
    const view = (): readonly BlockBody[] => {
      if (!chance(weather.mixedViews)) return chain.blocks();
      const former = chain.former((count) => random.below(count));
      return former.slice(0, former.length - random.below(5));
    };
    /** A node may be behind and on a dead fork, but takes no block for accepted on L1 that is not. */
    const isFinal = ({ height, hash }: BlockBody): boolean =>
      height <= chain.l1() && chain.blocks()[height]?.hash === hash;
    const at = (id: unknown): BlockBody => {
      const seen = view();
      const block =
        id === 'latest' ? seen.at(-1) : id === 'l1_accepted' ? seen.findLast(isFinal) : seen[Number(id)];
      if (block === undefined) throw new RpcError('block', rpcCodes.blockNotFound, 'Block not found', null);
      return block;
    };
    return {
      chainId: () => through(process, 'node', async () => toFelt(0x534e5f53494dn)),
      specVersion: () => through(process, 'node', async () => '0.10.0'),
      blockHashAndNumber: () => through(process, 'node', async () => pointOf(at('latest'))),
      getBlockHeader: (id) => through(process, 'node', async () => headerOf(at(id), isFinal)),
      getBlockWithReceipts: (id) =>
        through(process, 'node', async () => {
          const body = at(id);
          return { body, status: headerOf(body, isFinal).status, bytes: 500 };
        }),
      l1Accepted: () =>
        through(process, 'node', async () => (chain.l1() < 0 ? null : pointOf(at('l1_accepted')))),
    };
  };

  const makeStore = (process: { killed: boolean }): IngestStore =>
    new Proxy<IngestStore>(store, {
      get(target, name: keyof IngestStore) {
        const method: (...args: never[]) => Promise<unknown> = target[name];
        return (...args: never[]) => through(process, 'store', async () => await method(...args));
      },
    });

  const publish: IngestDeps['publisher']['publish'] = async (topic, messages) => {
    for (const { value } of structuredClone(messages)) {
      if (topic.name === topics.chainBlocks.name) log.push(topics.chainBlocks.schema.parse(value));
      if (topic.name === topics.quarantine.name) quarantine.push(topics.quarantine.schema.parse(value));
    }
    return messages.map((_, offset) => ({ partition: 0, offset }));
  };

  const world = {
    /** Whose answers are lost. */
    faulty: 'all' as Part | 'all',
    random,
    clock,
    chain,
    store,
    log,
    quarantine,
    weather,
    coin,
    isRunning: (): boolean => running !== null && !running.killed,
    start(): void {
      processes += 1;
      const process = { killed: false };
      const ingester = startIngester({
        node: makeNode(process),
        store: makeStore(process),
        publisher: { publish: (topic, messages) => through(process, 'log', () => publish(topic, messages)) },
        standards: {
          resolve: (contracts) =>
            through(process, 'node', async () => {
              const facts = { standard: coin.standard, class_hash: null };
              return new Map(contracts.map((contract) => [contract, facts]));
            }),
        },
        bodyOf: async (height) => {
          // The index is behind the log: it knows of what was said a while ago, or of nothing yet.
          const known = log.slice(0, Math.max(0, log.length - random.below(40)));
          const newest = known
            .filter(({ block }) => block.height === height)
            .toSorted((a, b) => b.seq - a.seq)[0];
          return newest?.type === 'block.accepted' ? newest : null;
        },
        clock,
        log: silent,
        metrics,
        settings: {
          indexFrom: 0,
          backfillChunkBlocks: 7,
          backfillConcurrency: 2,
          prefetchBytes: 5000,
          prefetchConcurrency: 4,
          headPollMs: 200,
          l1PollMs: 500,
          stallMs: 60_000,
          leaseMs: 5000,
          holder: `p${processes}`,
        },
      });
      ingester.done.catch(() => {
        process.killed = true;
      });
      running = {
        get killed() {
          return process.killed;
        },
        stop: () => ingester.stop(),
      };
    },
    async stop(): Promise<void> {
      const stopping = running?.stop();
      await clock.run(60_000);
      await stopping;
    },
  };
  return world;
}
