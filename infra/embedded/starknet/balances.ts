import { isNft } from '../../../schemas/messages/common.ts';
import { ACTORS, NOBODY, isActor } from './actors.ts';
import type { BlockSource } from './blocks.ts';
import { createFlows } from './flows.ts';
import type { Flows } from './flows.ts';
import type { ForkTree } from './forks.ts';
import { item } from './hash.ts';
import { endowmentOf } from './schedule.ts';
import type { Token } from './tokens.ts';

export type Balances = {
  /** The balance after the block at `height`; ERC-721: how many ids; ERC-1155: of `id`, or of all ids together. */
  balance(forkId: number, height: number, token: Token, holder: number, id: bigint | null): bigint;
  supply(forkId: number, height: number, token: Token): bigint;
  /** Null if the id is not minted or does not exist. */
  ownerOf(forkId: number, height: number, token: Token, id: bigint): number | null;
  warm: Flows['warm'];
};

/**
 * Balances at any height of any fork, computed from the schedule. Notes are looked up (under a microsecond each); fees,
 * deposits and fundings are added from cached sums of 512 heights each.
 */
export function createBalances(source: BlockSource, tree: ForkTree): Balances {
  const { schedule } = source;
  const flows = createFlows(schedule, tree);
  const idIndex = new Map<number, Map<bigint, number>>();

  function inNotes(
    forkId: number,
    height: number,
    token: Token,
    id: bigint | null,
    of: (holder: number) => boolean,
  ) {
    let sum = 0n;
    const { first, count } = schedule.notesOf(token.index);
    for (let note = first; note < first + count; note++) {
      if (!of(schedule.ownerAt(forkId, note, height))) continue;
      for (const part of schedule.contents(token.index, note)) {
        if (id === null || part.id === id) sum += part.amount;
      }
    }
    return sum;
  }

  return {
    balance(forkId, height, token, holder, id) {
      if (holder === NOBODY) return 0n;
      const notes = inNotes(forkId, height, token, id, (owner) => owner === holder);
      if (isNft(token.standard)) return notes;
      const endowment = isActor(holder) ? endowmentOf(token) : 0n;
      return notes + endowment + flows.sum(forkId, height, token.index, holder);
    },
    supply(forkId, height, token) {
      const notes = inNotes(forkId, height, token, null, (owner) => owner !== NOBODY);
      if (isNft(token.standard)) return notes;
      const endowments = BigInt(ACTORS) * endowmentOf(token);
      return notes + endowments - flows.sum(forkId, height, token.index, NOBODY);
    },
    warm: flows.warm,
    ownerOf(forkId, height, token, id) {
      let ids = idIndex.get(token.index);
      if (ids === undefined) {
        ids = new Map();
        const { first, count } = schedule.notesOf(token.index);
        for (let note = first; note < first + count; note++) {
          const part = item(schedule.contents(token.index, note), 0);
          if (part.id !== null) ids.set(part.id, note);
        }
        idIndex.set(token.index, ids);
      }
      const note = ids.get(id);
      if (note === undefined) return null;
      const owner = schedule.ownerAt(forkId, note, height);
      return owner === NOBODY ? null : owner;
    },
  };
}
