import { createLogger } from '../../infra/log.ts';
import { createMetrics } from '../../infra/metrics.ts';
import { withBlockChecks } from '../../pipeline/ingest/block-checks.ts';
import { createCommitmentChecks } from '../../pipeline/ingest/commitments.ts';
import type {
  CheckSettings,
  Commitment,
  CommitmentChecks,
  CommitmentStore,
} from '../../pipeline/ingest/commitments.ts';
import { createIngestMetrics } from '../../pipeline/ingest/metrics.ts';
import type { IngestNode } from '../../pipeline/ingest/ports.ts';
import type { FetchedBlock } from '../../pipeline/node/types.ts';
import { computeCommitment } from '../../schemas/commitment/compute.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';

/** When every block of a test is old. */
const LONG_AFTER = Date.UTC(2100);
const never = () => Promise.reject(new Error('not expected'));

export interface KnownStore extends CommitmentStore {
  /** `commitment version outcome`, of each that was stored, and how often. */
  readonly stored: Map<string, number>;
  reads(commitment: Commitment): number;
}

/** A store in memory, in which blocks of some versions were verified. */
export function knownStore(known: readonly `${Commitment} ${string}`[] = []): KnownStore {
  const stored = new Map(known.map((one) => [`${one} verified`, 0]));
  const reads: Commitment[] = [];
  let lowest: number | null = null;
  return {
    stored,
    reads: (commitment) => reads.filter((one) => one === commitment).length,
    async verifiedVersions(commitment) {
      reads.push(commitment);
      return [...stored.keys()]
        .map((key) => key.split(' '))
        .flatMap(([kind, version = '', outcome]) =>
          kind === commitment && outcome === 'verified' ? [version] : [],
        );
    },
    async forget(from) {
      const keys = [...stored.keys()].filter((key) => key.endsWith('verified') && (lowest ?? -1) >= from);
      for (const key of keys) stored.delete(key);
      if (keys.length > 0) lowest = null;
      return keys.map((key) => ({ commitment: key.split(' ')[0] ?? '', version: key.split(' ')[1] ?? '' }));
    },
    versions: async () => [...new Set([...stored.keys()].map((key) => key.split(' ')[1] ?? ''))],
    lowest: async () => lowest,
    async add(counts) {
      for (const { commitment, version, outcome, blocks, from } of counts) {
        if (outcome === 'verified') lowest = Math.min(lowest ?? from, from);
        const key = `${commitment} ${version} ${outcome}`;
        stored.set(key, (stored.get(key) ?? 0) + blocks);
      }
    },
  };
}

export interface CheckedOptions extends Partial<Pick<CheckSettings, 'mode' | 'incomplete'>> {
  readonly store?: CommitmentStore;
  /** The newest blocks that the node reports, in turn, before any is fetched. */
  readonly heads?: readonly number[];
  /** The height of the header that is read by the tag of the newest block, after that. */
  readonly latest?: number;
  /** Time in milliseconds. */
  readonly now?: () => number;
}

const newestHeader = {
  hash: ZERO_FELT,
  parentHash: ZERO_FELT,
  status: 'ACCEPTED_ON_L2',
  timestamp: 0,
  transactionCount: 0,
} as const;

type CheckedNode = IngestNode & Pick<CommitmentChecks, 'flush' | 'published' | 'reverted'>;

/** A node of these blocks, by height, whose blocks are compared. */
export async function checkedNode(
  blocks: readonly FetchedBlock[],
  {
    mode = 'sample',
    incomplete = 'refuse',
    store = knownStore(),
    heads = [],
    latest,
    now = () => LONG_AFTER,
  }: CheckedOptions = {},
): Promise<CheckedNode> {
  const log = createLogger('test', 'silent');
  const metrics = createIngestMetrics(createMetrics('test'));
  const checks = createCommitmentChecks({ store, metrics, clock: { now }, log });
  const reported = [...heads];
  const node = withBlockChecks({
    node: {
      chainId: never,
      specVersion: never,
      blockHashAndNumber: async () => ({ height: reported.shift() ?? 0, hash: ZERO_FELT }),
      getBlockHeader: async () => ({ ...newestHeader, height: latest ?? (await never()) }),
      l1Accepted: never,
      getBlockWithReceipts: async (id) => blocks[Number(id)] ?? (await never()),
    },
    checks,
    mode,
    incomplete,
    compute: async (input) => computeCommitment(input),
    clock: { wallTime: now },
    log,
  });
  while (reported.length > 0) await node.blockHashAndNumber();
  if (latest !== undefined) await node.getBlockHeader('latest');
  return {
    ...node,
    flush: () => checks.flush(),
    published: (published) => checks.published(published),
    reverted: (from) => checks.reverted(from),
  };
}

/** What the ingester gets of each block in turn, and publishes: what `of` shows, or the code of the error. */
export async function checkedBlocks<T>(
  blocks: readonly FetchedBlock[],
  options: CheckedOptions,
  of: (block: FetchedBlock) => T,
): Promise<(T | string)[]> {
  const node = await checkedNode(blocks, options);
  const found = [];
  const publish = async (block: FetchedBlock): Promise<T> => {
    await node.published([block.body]);
    return of(block);
  };
  for (const height of blocks.keys())
    found.push(
      await node
        .getBlockWithReceipts(height)
        .then(publish, (error) => `${error.code}, retryable: ${error.retryable}`),
    );
  await node.flush();
  return found;
}

export const REFUSED = 'BLOCK_MISMATCHED, retryable: true';
export const UNVERIFIABLE = 'BLOCK_UNVERIFIABLE, retryable: true';
