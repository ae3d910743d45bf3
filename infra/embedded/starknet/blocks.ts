import { createLruCache, type LruCache } from '../../lru.ts';
import { createActors, sequencerAt, type Actors } from './actors.ts';
import { createBlockHashes, type BlockHashes, type HashOptions } from './block-hashes.ts';
import { commitmentsTo, hashOf, type Commitments, type HashedHeader } from './commitments.ts';
import type { Density } from './draws.ts';
import type { ForkTree } from './forks.ts';
import { createIdCodec, feltOfWords, idTags, mix, seedWord, type IdCodec } from './hash.ts';
import type { SimTx } from './envelope.ts';
import { renderGenesis } from './genesis.ts';
import { renderTx, type Draft, type RenderContext, type TrueMalformed, type TrueTransfer } from './render.ts';
import { createSchedule, type Schedule, type TxPlan } from './schedule.ts';
import { tokenTable } from './tokens.ts';

/** A block of one fork, without its status, which changes over time. */
export type SimBlock = {
  height: number;
  hash: string;
  parentHash: string;
  header: Record<string, unknown>;
  /** Header fields that spec 0.10 added. */
  counts: Record<string, unknown>;
  txs: readonly SimTx[];
  transfers: readonly TrueTransfer[];
  malformed: readonly TrueMalformed[];
};

type MadeBlock = Omit<SimBlock, 'header' | 'counts'> & {
  header: Omit<HashedHeader, keyof Counts>;
  counts: Counts;
};

type Counts = Commitments &
  Pick<HashedHeader, 'state_diff_commitment' | 'state_diff_length' | 'event_count' | 'transaction_count'>;

export type BlockSource = {
  schedule: Schedule;
  actors: Actors;
  block(forkId: number, height: number): SimBlock;
  hashes: BlockHashes;
  /** Makes blocks again: their timestamps have changed. */
  forget(): void;
  /** The block of a fork that contains a transaction, and its index there. */
  findTx(forkId: number, hash: string, head: number): { block: SimBlock; index: number } | null;
};

export type BlockOptions = {
  seed: string;
  density: Density;
  malformed: number;
  /** Token contracts besides those of tokens.json. */
  copiedTokens: number;
  tree: ForkTree;
  timestamp: (height: number) => number;
  hashFile: HashOptions['file'];
};

const CACHED_BLOCKS = 32;
/** Blocks are often served some time after their hash was computed. */
const CACHED_COMMITMENTS = 4096;
const GENESIS_SALT = 0x7fffffff;
const STARKNET_VERSION = '0.14.1';

/**
 * Blocks as a pure function of (seed, options, forks), at any height and in any order. The hash of a block, which depends on all
 * blocks below it, and the commitments in its header take most of the time of making it: both are computed when they are read.
 */
export function createBlockSource(options: BlockOptions): BlockSource {
  const { tree, density, copiedTokens } = options;
  const seed = seedWord(options.seed);
  const codec = createIdCodec(codecSeed(options));
  const actors = createActors(options.seed, codec);
  const schedule = createSchedule(seed, density, tree, tokenTable(copiedTokens));
  let blocks = createLruCache<string, MadeBlock>(CACHED_BLOCKS);
  const commitments = createLruCache<string, Commitments>(CACHED_COMMITMENTS);

  const { contents, tokenOfNote } = schedule;
  const txHash = (plan: TxPlan) =>
    codec.encode(idTags.transaction, plan.origin * 65536 + plan.slot, plan.salt * 8 + plan.sub, digest(plan));
  const context: RenderContext = {
    seed,
    actors,
    contents,
    tokenOfNote,
    tokens: schedule.tokens.list,
    malformed: options.malformed,
    txHash,
  };

  const hashes = createBlockHashes({
    tree,
    file: options.hashFile,
    hashOf({ fork, height }, parentHash) {
      const { header, counts } = block(fork, height);
      return hashOf({ ...header, ...counts }, parentHash);
    },
  });

  function make(key: string, forkId: number, height: number): MadeBlock {
    const draft =
      height === 0
        ? renderGenesis(context, schedule, (index) =>
            codec.encode(idTags.transaction, index, GENESIS_SALT, 0),
          )
        : draftOf(context, schedule, forkId, height);
    const { txs, transfers, malformed, events } = draft;
    const salt = tree.governing(forkId, height);
    const words = (n: number) => feltOfWords(seed, height, salt, n);
    const committed = () => cached(commitments, key, () => commitmentsTo(STARKNET_VERSION, txs));
    return {
      height,
      get hash() {
        return hashes.at(forkId, height);
      },
      get parentHash() {
        return height === 0 ? '0x0' : hashes.at(forkId, height - 1);
      },
      header: {
        block_number: height,
        new_root: words(11),
        timestamp: options.timestamp(height),
        sequencer_address: actors.hex(sequencerAt(height)),
        ...gasPrices(mix(seed, height, salt, 1)),
      },
      counts: countsOf(committed, words(15), events, txs.length),
      txs,
      transfers,
      malformed,
    };
  }

  function block(forkId: number, height: number): MadeBlock {
    const key = `${tree.governing(forkId, height)}:${height}`;
    return cached(blocks, key, () => make(key, forkId, height));
  }

  return {
    schedule,
    actors,
    block,
    hashes,
    forget: () => void (blocks = createLruCache(CACHED_BLOCKS)),
    findTx: createTxFinder(codec, block),
  };
}

function createTxFinder(codec: IdCodec, block: BlockSource['block']): BlockSource['findTx'] {
  return (forkId, id, head) => {
    const parts = codec.decode(id);
    if (parts?.tag !== idTags.transaction) return null;
    const origin = parts.b === GENESIS_SALT ? 0 : Math.floor(parts.a / 65536);
    // A transaction is at the height it was drawn for, or one higher.
    for (const height of [origin, origin + 1]) {
      if (height > head) continue;
      const found = block(forkId, height);
      const index = found.txs.findIndex((tx) => tx.hash === id);
      if (index !== -1) return { block: found, index };
    }
    return null;
  };
}

function countsOf(
  committed: () => Commitments,
  stateDiff: string,
  events: number,
  transactions: number,
): Counts {
  return {
    get transaction_commitment() {
      return committed().transaction_commitment;
    },
    get event_commitment() {
      return committed().event_commitment;
    },
    get receipt_commitment() {
      return committed().receipt_commitment;
    },
    state_diff_commitment: stateDiff,
    event_count: events,
    transaction_count: transactions,
    state_diff_length: events * 2 + 1,
  };
}

function codecSeed({
  seed,
  density: { slots, movesPerSlot },
  malformed,
  copiedTokens,
}: BlockOptions): string {
  return [seed, slots, movesPerSlot, malformed].concat(copiedTokens === 0 ? [] : [copiedTokens]).join(':');
}

function cached<T>(cache: LruCache<string, T>, key: string, make: () => T): T {
  const known = cache.get(key);
  if (known !== undefined) return known;
  const made = make();
  cache.set(key, made);
  return made;
}

function draftOf(context: RenderContext, schedule: Schedule, forkId: number, height: number): Draft {
  const draft: Draft = { txs: [], transfers: [], malformed: [], events: 0 };
  const place = { height, sequencer: sequencerAt(height) };
  for (const plan of schedule.planBlock(forkId, height)) renderTx(context, place, plan, draft);
  return draft;
}

function gasPrices(chance: number) {
  const price = 0x3b9aca00 + (chance % 0x3b9aca00);
  return {
    l1_gas_price: {
      price_in_fri: `0x${(price * 20_000).toString(16)}`,
      price_in_wei: `0x${price.toString(16)}`,
    },
    l1_data_gas_price: { price_in_fri: '0x5645', price_in_wei: '0x1' },
    l1_da_mode: 'BLOB' as const,
    starknet_version: STARKNET_VERSION,
    l2_gas_price: { price_in_fri: '0xb2d05e00', price_in_wei: '0x21299' },
  };
}

/** Part of the transaction hash: a transaction whose senders, receivers or notes differ on a fork has another hash. */
function digest(plan: TxPlan): number {
  let sum = mix(plan.sender, plan.fee, plan.moves.length, 0x6d);
  for (const move of plan.moves) sum = mix(sum, move.note, move.from, move.to);
  return sum;
}
