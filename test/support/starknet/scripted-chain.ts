import { createChain } from '../../../infra/embedded/starknet/chain.ts';
import type { ChainOptions, ReorgRequest, SimulatedChain } from '../../../infra/embedded/starknet/chain.ts';
import type { Fork } from '../../../infra/embedded/starknet/forks.ts';
import { AppError } from '../../../schemas/errors.ts';

/** A simulated chain with what only a test asks for: returning to an earlier fork, serving a lower head, moving L1. */
export type ScriptedChain = Omit<SimulatedChain, 'reorg'> & {
  /** `force`: also below the height accepted on L1, which is lowered. */
  reorg(request: ReorgRequest & { force?: boolean | undefined }): Fork;
  switchTo(forkId: number): void;
  setL1(height: number): void;
  /** Serves a lower head, as a lagging node does; null: the real one. */
  setHead(height: number | null): void;
  servedHead: () => number;
};

export function createScriptedChain(options: ChainOptions): ScriptedChain {
  const chain = createChain(options);
  /** The head of each fork when another became canonical. */
  const heads = new Map<number, number>();
  let lowered: number | null = null;
  const move = <T>(change: () => T): T => {
    heads.set(chain.fork(), chain.head());
    lowered = null;
    return change();
  };

  function switchTo(forkId: number): void {
    const target = chain.tree.get(forkId);
    const known = heads.get(forkId) ?? target.from + Math.max(target.depth, 1) - 1;
    const head = forkId === chain.fork() ? chain.head() : known;
    let common = Math.min(head, chain.head());
    while (chain.tree.governing(forkId, common) !== chain.tree.governing(chain.fork(), common)) common--;
    if (common < chain.l1())
      throw new AppError('CONFLICT', `fork ${forkId} starts at ${common + 1}, which is accepted on L1`);
    move(() => chain.moveTo({ head, fork: forkId }));
  }

  return {
    ...chain,
    advance: (blocks) => move(() => chain.advance(blocks)),
    tick: () => move(() => chain.tick()),
    reorg({ force = false, ...request }) {
      const from = chain.head() - request.depth + 1;
      if (force && request.depth >= 1 && from >= 1 && from <= chain.l1()) chain.moveTo({ l1: from - 1 });
      return move(() => chain.reorg(request));
    },
    switchTo,
    setL1(height) {
      if (height > chain.head())
        throw new AppError('INVALID', `L1 height ${height} is above the head (${chain.head()})`);
      chain.moveTo({ l1: height });
    },
    setHead(height) {
      if (height !== null && (height < 0 || height > chain.head()))
        throw new AppError('INVALID', `height ${height} is out of range`);
      lowered = height;
    },
    servedHead: () => Math.min(lowered ?? chain.head(), chain.head()),
  };
}
