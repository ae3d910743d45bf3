import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

import { z } from 'zod';

import { AppError } from '../../../schemas/errors.ts';
import { errorCode } from '../../error-code.ts';
import { createBalances, type Balances } from './balances.ts';
import { createBlockSource, type BlockSource, type SimBlock } from './blocks.ts';
import { createForkTree, forkSchema, type Fork, type ForkTree } from './forks.ts';
import { mix, seedWord } from './hash.ts';

export type ChainOptions = {
  seed: string;
  /** Unix seconds; default: such that block `initialHead` has the current time. */
  genesisTime?: number | undefined;
  blockSeconds: number;
  initialHead: number;
  /** Transaction slots in a block (three of four are filled), and moves a transaction may make. */
  slots: number;
  movesPerSlot: number;
  /** Fraction of transactions with a malformed token event. */
  malformed: number;
  /** Token contracts besides those of tokens.json, a third of them NFTs. */
  copiedTokens: number;
  /** How far L1 lags behind the head, and in which steps it advances; null: it advances by `moveTo` only. */
  l1: { lag: number; step: number } | null;
  /** Average number of blocks between scripted reorgs, and their maximum depth; null: none. */
  reorgs: { every: number; maxDepth: number } | null;
  stateFile?: string | undefined;
  /** Unix seconds. */
  now: () => number;
};

export type ReorgRequest = {
  depth: number;
  /** Blocks of the new fork; default: as many as it replaces. */
  length?: number | undefined;
  share?: number | undefined;
  events?: Fork['events'] | undefined;
};

export type SimulatedChain = {
  source: BlockSource;
  balances: Balances;
  tree: ForkTree;
  head: () => number;
  /** Highest height accepted on L1. */
  l1(): number;
  /** The canonical fork. */
  fork: () => number;
  block(height: number, forkId?: number): SimBlock;
  advance(blocks?: number): number;
  reorg(request: ReorgRequest): Fork;
  /** Sets the head, canonical fork or L1 height directly. */
  moveTo(target: { head?: number; fork?: number; l1?: number }): void;
  /** Adds a block or, when one is due, a scripted reorg. */
  tick(): void;
  /** Dates the next block to the current time after a pause. */
  catchUp(): void;
  /** Calls back when the head or the canonical fork has changed; returns a function that ends it. */
  watch(onChange: () => void): () => void;
};

/** Raised when the same options give other blocks: a stored chain would change its hashes. */
const VERSION = 2;

/** One chain with a head, a canonical fork and a height accepted on L1; the seed determines everything else. */
export function createChain(options: ChainOptions): SimulatedChain {
  const seed = seedWord(options.seed);
  const { slots, movesPerSlot, blockSeconds, stateFile } = options;
  const identity = identityOf(options);
  const stored = stateFile === undefined ? null : readState(stateFile, identity);
  const state = stored ?? initialState(identity, options);

  const tree = createForkTree(seed, state.forks);
  const density = { slots, movesPerSlot };
  const hashFile = stateFile === undefined ? null : { path: `${stateFile}.hashes`, isNew: stored === null };
  const source = createBlockSource({ ...options, density, tree, timestamp, hashFile });
  const balances = createBalances(source, tree);

  const changes = createSignal();

  function timestamp(height: number): number {
    const offset = state.offsets.findLast(({ from }) => from <= height)?.seconds ?? 0;
    return state.genesisTime + Math.floor(height * blockSeconds + offset);
  }

  function save(): void {
    if (options.stateFile === undefined) return;
    state.forks = [...tree.list()];
    writeState(options.stateFile, state);
  }

  function followL1(): void {
    if (options.l1 === null) return;
    const { lag, step } = options.l1;
    state.l1 = Math.max(state.l1, Math.floor((state.head - lag) / step) * step);
  }

  function moveTo(target: { head?: number; fork?: number; l1?: number }): void {
    Object.assign(state, target);
    if (target.head !== undefined) followL1();
    save();
    changes.emit();
  }

  function reorg(request: ReorgRequest): Fork {
    const { depth, length = depth, share = 0.6, events = 'same' } = request;
    const from = state.head - depth + 1;
    if (depth < 1 || from < 1)
      throw new AppError('INVALID', `reorg depth ${depth} is out of range at height ${state.head}`);
    if (length < 1) throw new AppError('INVALID', `a fork needs at least one block, not ${length}`);
    if (from <= state.l1)
      throw new AppError('CONFLICT', `height ${from} is accepted on L1 (up to ${state.l1})`);
    const fork = tree.add({ parent: state.fork, from, depth, share, events });
    moveTo({ head: from + length - 1, fork: fork.id });
    return fork;
  }

  function advance(blocks = 1): number {
    moveTo({ head: state.head + blocks });
    return state.head;
  }

  function catchUp(): void {
    const behind = options.now() - timestamp(state.head + 1);
    if (behind <= blockSeconds) return;
    const seconds = (state.offsets.at(-1)?.seconds ?? 0) + behind;
    state.offsets.push({ from: state.head + 1, seconds: Math.floor(seconds) });
    source.forget();
    save();
  }

  if (stored === null) {
    followL1();
    save();
  }

  return {
    source,
    balances,
    tree,
    head: () => state.head,
    l1: () => state.l1,
    fork: () => state.fork,
    block: (height, forkId = state.fork) => source.block(forkId, height),
    advance,
    reorg,
    moveTo,
    tick() {
      const due = dueReorg(options.reorgs, { seed, tree, state });
      if (due === null) advance();
      else reorg(due);
    },
    catchUp,
    watch: changes.watch,
  };
}

function identityOf({
  seed,
  slots,
  movesPerSlot,
  malformed,
  blockSeconds,
  copiedTokens,
}: ChainOptions): string {
  return [`v${VERSION}`, seed, slots, movesPerSlot, malformed, blockSeconds]
    .concat(copiedTokens === 0 ? [] : [copiedTokens])
    .join(':');
}

function createSignal(): { emit(): void; readonly watch: SimulatedChain['watch'] } {
  const listeners = new Set<() => void>();
  return {
    emit: () => listeners.forEach((listener) => listener()),
    watch(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** The next scripted reorg, if one is due. Depends on the number of forks only, so that a restart resumes the same script. */
function dueReorg(
  reorgs: ChainOptions['reorgs'],
  { seed, tree, state }: { seed: number; tree: ForkTree; state: ChainState },
): ReorgRequest | null {
  if (reorgs === null) return null;
  const { every, maxDepth } = reorgs;
  const count = tree.list().length;
  const last = tree.get(count - 1);
  const chance = mix(seed, count, 0x4e06, 0);
  const gap = Math.ceil(every * (0.75 + (chance % 512) / 1024));
  if (state.head < Math.max(last.from + last.depth, count === 1 ? state.firstHead : 0) + gap) return null;
  const depth = Math.min(1 + ((chance >>> 9) % maxDepth), state.head - state.l1);
  if (depth < 1) return null;
  const length = Math.max(1, depth - 1 + ((chance >>> 16) % 3));
  const events = (['same', 'fewer', 'more'] as const)[(chance >>> 20) % 3] ?? 'same';
  return { depth, length, events };
}

const height = z.int().min(0);

const stateSchema = z.object({
  /** The options that determine the chain. */
  identity: z.string(),
  genesisTime: z.int(),
  head: height,
  /** The head at the first start. */
  firstHead: height,
  l1: height,
  fork: height,
  /** Seconds added to the timestamps from a height on, after a time without blocks. */
  offsets: z.array(z.object({ from: height, seconds: z.number() })),
  forks: z.array(forkSchema),
});

type ChainState = z.infer<typeof stateSchema>;

function initialState(
  identity: string,
  { genesisTime, now, initialHead, blockSeconds }: ChainOptions,
): ChainState {
  return {
    identity,
    genesisTime: genesisTime ?? Math.floor(now() - initialHead * blockSeconds),
    head: initialHead,
    firstHead: initialHead,
    l1: 0,
    fork: 0,
    offsets: [],
    forks: [],
  };
}

/** Null: no such file yet. */
function readState(file: string, identity: string): ChainState | null {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return null;
    throw error;
  }
  const parsed = stateSchema.safeParse(JSON.parse(text));
  if (!parsed.success) throw new AppError('INVALID', `${file} is not the state of a simulated chain`);
  if (parsed.data.identity !== identity) {
    const message = `${file} belongs to another chain (${parsed.data.identity}, expected ${identity}): use another folder, or the seed and the release that made it`;
    throw new AppError('CONFLICT', message);
  }
  return parsed.data;
}

/** Called before a change is served, so that a restart never serves another block under a known hash. */
function writeState(file: string, state: ChainState): void {
  mkdirSync(dirname(file), { recursive: true });
  const next = `${file}.next`;
  writeFileSync(next, JSON.stringify(state));
  renameSync(next, file);
}
