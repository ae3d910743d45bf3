import { AppError } from '../../../schemas/errors.ts';
import { createBalances, type Balances } from './balances.ts';
import { createBlockSource, type BlockSource, type SimBlock } from './blocks.ts';
import { createForkTree, type Fork, type ForkTree } from './forks.ts';
import { mix, seedWord } from './hash.ts';
import { readState, writeState, type ChainState } from './state.ts';

export type ChainOptions = {
  seed: string;
  /** Unix seconds; default: so that block `initialHead` is of now. */
  genesisTime?: number | undefined;
  blockSeconds: number;
  initialHead: number;
  /** Transaction slots in a block (three of four are taken), and moves a transaction may make. */
  slots: number;
  movesPerSlot: number;
  /** Share of transactions with an unreadable token event. */
  malformed: number;
  /** How far L1 trails, and in which steps it moves; null: it moves by `setL1` only. */
  l1: { lag: number; step: number } | null;
  /** About how many blocks lie between scripted reorgs, and how deep they go; null: none. */
  reorgs: { every: number; maxDepth: number } | null;
  stateFile?: string | undefined;
  /** Unix seconds. */
  now: () => number;
};

type ReorgRequest = {
  depth: number;
  /** Blocks of the new fork; default: as many as were taken off. */
  length?: number | undefined;
  share?: number | undefined;
  events?: Fork['events'] | undefined;
  /** Also below the height accepted on L1, which goes down with it. */
  force?: boolean | undefined;
};

export type SimulatedChain = {
  source: BlockSource;
  balances: Balances;
  tree: ForkTree;
  head(): number;
  /** The height served as head: lower while the node is made to lag. */
  servedHead(): number;
  l1(): number;
  fork(): number;
  block(height: number, forkId?: number): SimBlock;
  advance(blocks?: number): number;
  reorg(request: ReorgRequest): Fork;
  switchTo(forkId: number): void;
  setL1(height: number): void;
  setHead(height: number | null): void;
  /** What the clock calls: the next block or, when one is due, the next scripted reorg. */
  tick(): void;
  /** Lets the next block be of now, after a stand-still. */
  catchUp(): void;
};

/** One chain with a head, a fork in force and a height accepted on L1; everything else follows from the seed. */
export function createChain(options: ChainOptions): SimulatedChain {
  const seed = seedWord(options.seed);
  const identity = [
    options.seed,
    options.slots,
    options.movesPerSlot,
    options.malformed,
    options.blockSeconds,
  ].join(':');
  const stored = options.stateFile === undefined ? null : readState(options.stateFile, identity);
  const state: ChainState = stored ?? {
    identity,
    genesisTime:
      options.genesisTime ?? Math.floor(options.now() - options.initialHead * options.blockSeconds),
    head: options.initialHead,
    firstHead: options.initialHead,
    l1: 0,
    fork: 0,
    offsets: [],
    forks: [],
    forkHeads: [],
  };
  let shownHead: number | null = null;

  const tree = createForkTree(seed, state.forks);
  const density = { slots: options.slots, movesPerSlot: options.movesPerSlot };
  const source = createBlockSource({
    seed: options.seed,
    density,
    malformed: options.malformed,
    tree,
    timestamp,
  });
  const balances = createBalances(source, tree);

  function timestamp(height: number): number {
    const offset = state.offsets.findLast(({ from }) => from <= height)?.seconds ?? 0;
    return state.genesisTime + Math.floor(height * options.blockSeconds + offset);
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

  function moveHead(head: number, forkId: number): void {
    if (forkId !== state.fork) {
      state.forkHeads = [...state.forkHeads.filter(([id]) => id !== state.fork), [state.fork, state.head]];
      state.fork = forkId;
    }
    state.head = head;
    shownHead = null;
    followL1();
    save();
  }

  function reorg(request: ReorgRequest): Fork {
    const { depth } = request;
    const length = request.length ?? depth;
    const from = state.head - depth + 1;
    if (depth < 1 || from < 1)
      throw new AppError('INVALID', `a reorg of ${depth} blocks does not fit at height ${state.head}`);
    if (length < 1) throw new AppError('INVALID', 'a fork has one block at least');
    if (from <= state.l1) {
      if (request.force !== true)
        throw new AppError('CONFLICT', `height ${from} is accepted on L1 (${state.l1})`);
      state.l1 = from - 1;
    }
    const { share = 0.6, events = 'same' } = request;
    const fork = tree.add({ parent: state.fork, from, depth, share, events });
    moveHead(from + length - 1, fork.id);
    return fork;
  }

  function switchTo(forkId: number): void {
    const target = tree.get(forkId);
    const known = state.forkHeads.find(([id]) => id === forkId)?.[1];
    const head = forkId === state.fork ? state.head : (known ?? target.from + Math.max(target.depth, 1) - 1);
    let common = Math.min(head, state.head);
    while (tree.governing(forkId, common) !== tree.governing(state.fork, common)) common--;
    if (common < state.l1)
      throw new AppError('CONFLICT', `fork ${forkId} parts at ${common + 1}, which is accepted on L1`);
    moveHead(head, forkId);
  }

  function advance(blocks = 1): number {
    moveHead(state.head + blocks, state.fork);
    return state.head;
  }

  /** Drawn from how many forks there are, so that a restart goes on with the same script. */
  function dueReorg(): ReorgRequest | null {
    if (options.reorgs === null) return null;
    const { every, maxDepth } = options.reorgs;
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

  if (stored === null) {
    followL1();
    save();
  }

  return {
    source,
    balances,
    tree,
    head: () => state.head,
    servedHead: () => Math.min(shownHead ?? state.head, state.head),
    l1: () => state.l1,
    fork: () => state.fork,
    block: (height, forkId = state.fork) => source.block(forkId, height),
    advance,
    reorg,
    switchTo,
    setL1(height) {
      if (height > state.head)
        throw new AppError('INVALID', `L1 cannot be ahead of the head (${state.head})`);
      state.l1 = height;
      save();
    },
    setHead(height) {
      if (height !== null && (height < 0 || height > state.head))
        throw new AppError('INVALID', `no height ${height}`);
      shownHead = height;
    },
    tick() {
      const due = dueReorg();
      if (due === null) advance();
      else reorg(due);
    },
    catchUp() {
      const behind = options.now() - timestamp(state.head + 1);
      if (behind <= options.blockSeconds) return;
      const seconds = (state.offsets.at(-1)?.seconds ?? 0) + behind;
      state.offsets.push({ from: state.head + 1, seconds: Math.floor(seconds) });
      save();
    },
  };
}
