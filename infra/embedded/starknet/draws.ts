import { ACTORS, EXCHANGE, HOLDERS, NOBODY, PASSIVE, SEQUENCERS } from './actors.ts';
import type { ForkTree } from './forks.ts';
import { mix } from './hash.ts';

export type Density = {
  /** Transaction slots in a block; about three of four are filled. */
  slots: number;
  /** Moves a transaction may make. */
  movesPerSlot: number;
};

export type Kind = 'empty' | 'moves' | 'quiet' | 'reverted' | 'deposit' | 'deploy' | 'declare';

export type Draws = {
  /** What the transaction of a slot does. */
  kindOf(height: number, slot: number, salt: number): Kind;
  /** The receiver of a move, NOBODY for a burn; null if the transaction does not make it. */
  receiverOf(height: number, slot: number, move: number, salt: number): number | null;
  /** The receiver of a turn, NOBODY for a burn; null if the turn does not take place. */
  destination(forkId: number, turn: number): { to: number; late: boolean } | null;
};

const BURN = 0.02;

/** What each slot of a block draws from the seed, on each fork. */
export function createDraws(seed: number, { slots, movesPerSlot }: Density, tree: ForkTree): Draws {
  const perBlock = slots * movesPerSlot;

  function kindOf(height: number, slot: number, salt: number): Kind {
    const events = salt === 0 ? 'same' : tree.get(salt).events;
    const chance = mix(seed, height, slot, salt ^ 0x71d) / 2 ** 32;
    const taken = events === 'same' ? 0.75 : events === 'more' ? 0.97 : 0.4;
    if (chance >= taken) return 'empty';
    const kind = chance / taken;
    if (kind < 0.76) return 'moves';
    if (kind < 0.86) return 'quiet';
    if (kind < 0.91) return 'reverted';
    if (kind < 0.95) return 'deposit';
    if (kind < 0.98) return 'deploy';
    return 'declare';
  }

  function destination(forkId: number, turn: number): { to: number; late: boolean } | null {
    const height = Math.floor(turn / perBlock);
    const rest = turn - height * perBlock;
    const slot = Math.floor(rest / movesPerSlot);
    const inclusion = tree.inclusion(forkId, height, slot);
    if (inclusion === null) return null;
    const to = receiverOf(height, slot, rest % movesPerSlot, inclusion.salt);
    return to === null ? null : { to, late: inclusion.late };
  }

  function receiverOf(height: number, slot: number, move: number, salt: number): number | null {
    if (kindOf(height, slot, salt) !== 'moves') return null;
    const chance = mix(seed, height, slot * movesPerSlot + move, salt ^ 0x3e11);
    const events = salt === 0 ? 'same' : tree.get(salt).events;
    if (move > 0) {
      const present = events === 'more' ? 0.85 : events === 'fewer' ? 0 : move === 1 ? 0.4 : 0.25;
      if (chance / 2 ** 32 >= present) return null;
    }
    return drawReceiver(mix(chance, slot, move, 0x77));
  }

  return { kindOf, receiverOf, destination };
}

function drawReceiver(chance: number): number {
  const share = (chance >>> 8) / 2 ** 24;
  if (share < BURN) return NOBODY;
  if (share < 0.08) return EXCHANGE;
  if (share < 0.13) return EXCHANGE + 1 + (chance % (HOLDERS - EXCHANGE - 3));
  if (share < 0.14) return SEQUENCERS;
  if (share < 0.3) return ACTORS + Math.floor(((share - 0.14) / 0.16) * PASSIVE);
  const skewed = (share - 0.3) / 0.7;
  return Math.floor(ACTORS * skewed * skewed);
}
