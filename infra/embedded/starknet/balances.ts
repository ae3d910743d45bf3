import { NOBODY } from './actors.ts';
import type { BlockSource } from './blocks.ts';
import { createFlows } from './flows.ts';
import type { Flows } from './flows.ts';
import type { ForkTree } from './forks.ts';
import { endowments } from './genesis.ts';
import { item } from './hash.ts';
import type { Token } from './tokens.ts';

export type Balances = {
  /** The balance after the block at `height`; ERC-721: how many ids; ERC-1155: of `id`, or of all ids together. */
  balance(forkId: number, height: number, token: Token, holder: number, id: bigint | null): bigint;
  supply(forkId: number, height: number, token: Token, id: bigint | null): bigint;
  /** Null if the id is not minted or does not exist. */
  ownerOf(forkId: number, height: number, token: Token, id: bigint): number | null;
  warm: Flows['warm'];
};

export function isNft(token: Token): boolean {
  return token.standard === 'erc721' || token.standard === 'erc1155';
}

/**
 * Balances at any height of any fork, computed from the schedule. Notes are looked up (under a microsecond each); fees,
 * deposits and fundings are added from cached sums of 512 heights each.
 */
export function createBalances(source: BlockSource, tree: ForkTree): Balances {
  const { schedule } = source;
  const flows = createFlows(schedule, tree);
  const granted = new Map<number, Map<number, bigint>>();
  const idIndex = new Map<number, Map<bigint, number>>();

  /** What block 0 granted beyond the notes, which are counted separately. */
  function grantedAtGenesis(token: Token): Map<number, bigint> {
    const known = granted.get(token.index);
    if (known !== undefined) return known;
    const sums = endowments(schedule, token);
    const { first, count } = schedule.notesOf(token.index);
    for (let note = first; note < first + count; note++) {
      const owner = schedule.firstOwner(note);
      if (owner === NOBODY) continue;
      for (const { amount } of schedule.contents(token.index, note))
        sums.set(owner, (sums.get(owner) ?? 0n) - amount);
    }
    granted.set(token.index, sums);
    return sums;
  }

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
      if (isNft(token)) return notes;
      return (
        notes + (grantedAtGenesis(token).get(holder) ?? 0n) + flows.sum(forkId, height, token.index, holder)
      );
    },
    supply(forkId, height, token, id) {
      let sum = inNotes(forkId, height, token, id, (owner) => owner !== NOBODY);
      if (isNft(token)) return sum;
      for (const amount of grantedAtGenesis(token).values()) sum += amount;
      return sum - flows.sum(forkId, height, token.index, NOBODY);
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
