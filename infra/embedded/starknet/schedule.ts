import { ACTORS, EXCHANGE, HOLDERS, NOBODY, PASSIVE, SEQUENCERS, isActor, sequencerAt } from './actors.ts';
import type { ForkTree } from './forks.ts';
import { item, mix } from './hash.ts';
import { createNotes } from './notes.ts';
import { ETH, STRK, tokens } from './tokens.ts';

/**
 * The schedule determines the transfers of any block without a replay. All value is divided into notes (an ERC-721 id, a
 * set of ERC-1155 amounts, a fixed amount of an ERC-20). The n-th move of the chain belongs to a known note, so that each
 * note has its turn once in `notes` moves, and its owner at a height is the receiver of its last turn that took place. So
 * nobody sends what they do not hold, on any fork.
 */
export type Density = {
  /** Transaction slots in a block; about three of four are filled. */
  slots: number;
  /** Moves a transaction may make. */
  movesPerSlot: number;
};

export type Kind = 'empty' | 'moves' | 'quiet' | 'reverted' | 'deposit' | 'deploy' | 'declare';

export type MovePlan = { note: number; from: number; to: number };

export type TxPlan = {
  kind: Exclude<Kind, 'empty'> | 'fund';
  /** The height and slot the transaction was drawn for, which identify it on every fork. */
  origin: number;
  slot: number;
  sub: number;
  salt: number;
  sender: number;
  moves: readonly MovePlan[];
  /** Token of the fee, and the fee in its fee units; 0: none. */
  feeToken: number;
  fee: number;
  /** A deposit's or a funding's token, receiver and units. */
  grant: { token: number; to: number; units: number } | null;
};

/** Fees and grants are whole multiples of these. */
export const FEE_UNITS: readonly bigint[] = [1_000_000_007n, 10_007n];
export const GRANT_UNITS: ReadonlyMap<number, bigint> = new Map([
  [0, 1_000_000_007n],
  [1, 1_000_003n],
  [2, 1n],
  [4, 1_000_003n],
]);

/** Granted to every actor in block 0 to pay fees; the most active one spends about 0.02 STRK a block. */
export const FEE_ENDOWMENTS: readonly bigint[] = [1_000_000n * 10n ** 18n, 1_000n * 10n ** 18n];

const SMALL_HOLDERS = 24;
const NONE = -2;
const BURN = 0.02;

export type Schedule = ReturnType<typeof createSchedule>;

export function createSchedule(seed: number, density: Density, tree: ForkTree) {
  const { slots, movesPerSlot } = density;
  const perBlock = slots * movesPerSlot;

  const notes = createNotes(seed, perBlock);
  const { total, noteOfTurn, turnOfNote } = notes;

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

  /** The receiver of a turn, NOBODY for a burn; null if the turn does not take place. */
  function destination(forkId: number, turn: number): { to: number; late: boolean } | null {
    const height = Math.floor(turn / perBlock);
    const rest = turn - height * perBlock;
    const slot = Math.floor(rest / movesPerSlot);
    const inclusion = tree.inclusion(forkId, height, slot);
    if (inclusion === null) return null;
    const to = moveOf(height, slot, rest % movesPerSlot, inclusion.salt);
    return to === NONE ? null : { to, late: inclusion.late };
  }

  function moveOf(height: number, slot: number, move: number, salt: number): number {
    if (kindOf(height, slot, salt) !== 'moves') return NONE;
    const chance = mix(seed, height, slot * movesPerSlot + move, salt ^ 0x3e11);
    const events = salt === 0 ? 'same' : tree.get(salt).events;
    if (move > 0) {
      const present = events === 'more' ? 0.85 : events === 'fewer' ? 0 : move === 1 ? 0.4 : 0.25;
      if (chance / 2 ** 32 >= present) return NONE;
    }
    return receiver(mix(chance, slot, move, 0x77));
  }

  function receiver(chance: number): number {
    const share = (chance >>> 8) / 2 ** 24;
    if (share < BURN) return NOBODY;
    if (share < 0.08) return EXCHANGE;
    if (share < 0.13) return EXCHANGE + 1 + (chance % (HOLDERS - EXCHANGE - 3));
    if (share < 0.14) return SEQUENCERS;
    if (share < 0.3) return ACTORS + Math.floor(((share - 0.14) / 0.16) * PASSIVE);
    const skewed = (share - 0.3) / 0.7;
    return Math.floor(ACTORS * skewed * skewed);
  }

  /** The owner in block 0. NFTs and a tenth of the ERC-20 notes are not minted yet. */
  function firstOwner(note: number): number {
    const token = item(tokens, notes.tokenOfNote(note));
    if (token.standard === 'erc721' || token.standard === 'erc1155') return NOBODY;
    const chance = mix(seed, note, 0x0e3d, 0);
    if (chance % 10 === 0) return NOBODY;
    return (chance >>> 8) % (token.notes >= 1000 ? ACTORS : SMALL_HOLDERS);
  }

  /** The owner before a turn. */
  function ownerBefore(forkId: number, note: number, turn: number): number {
    for (let at = turn - total; at >= perBlock; at -= total) {
      const sent = destination(forkId, at);
      if (sent !== null) return sent.to;
    }
    return firstOwner(note);
  }

  /** The owner after the block at `height`. */
  function ownerAt(forkId: number, note: number, height: number): number {
    const place = turnOfNote(note);
    const last = (height + 1) * perBlock - 1;
    if (last < place) return firstOwner(note);
    let at = place + Math.floor((last - place) / total) * total;
    for (; at >= perBlock; at -= total) {
      const sent = destination(forkId, at);
      if (sent !== null && !(sent.late && Math.floor(at / perBlock) === height)) return sent.to;
    }
    return firstOwner(note);
  }

  function movesOf(forkId: number, height: number, slot: number, salt: number): MovePlan[] {
    const moves: MovePlan[] = [];
    for (let move = 0; move < movesPerSlot; move++) {
      const to = moveOf(height, slot, move, salt);
      if (to === NONE) continue;
      const turn = (height * slots + slot) * movesPerSlot + move;
      const note = noteOfTurn(turn);
      const from = ownerBefore(forkId, note, turn);
      // Burning a note that is not minted is no transfer.
      if (from !== NOBODY || to !== NOBODY) moves.push({ note, from, to });
    }
    return moves;
  }

  function planSlot(forkId: number, height: number, slot: number, salt: number): TxPlan[] {
    const kind = kindOf(height, slot, salt);
    if (kind === 'empty') return [];
    const chance = mix(seed, height, slot, salt ^ 0xac);
    const feeToken = chance % 8 === 0 ? ETH : STRK;
    const fee = feeToken === STRK ? 2_000_000 + (chance >>> 6) : 1_000_000 + chance;
    const plan = { origin: height, slot, sub: 0, salt, moves: [], feeToken, fee, grant: null };
    const actor = (chance >>> 4) % ACTORS;
    switch (kind) {
      case 'moves': {
        const moves = movesOf(forkId, height, slot, salt);
        return [{ ...plan, kind, moves, sender: senderOf(moves, actor) }];
      }
      case 'deposit': {
        const token = item([ETH, 2, 4], (chance >>> 12) % 3);
        const units = 1_000_000 + mix(chance, 1, 2, 3) * 100;
        return [{ ...plan, kind, sender: NOBODY, feeToken: ETH, fee: 0, grant: { token, to: actor, units } }];
      }
      case 'deploy': {
        const account = (1 << 20) + height * slots + slot;
        const funds = { token: STRK, to: account, units: 4_000_000_000 };
        // Funding and deployment share a slot, so that a fork includes, delays or drops both.
        return [
          { ...plan, kind: 'fund', sender: actor, grant: funds },
          { ...plan, kind, sub: 1, feeToken: STRK, fee: 2_000_000 + (chance >>> 7), sender: account },
        ];
      }
      case 'quiet':
      case 'reverted':
      case 'declare':
        return [{ ...plan, kind, sender: actor }];
    }
  }

  /** The transactions of a block in order: first those of the previous block that come one block late. */
  function planBlock(forkId: number, height: number): TxPlan[] {
    if (height === 0) return [];
    const plans: TxPlan[] = [];
    if (tree.governing(forkId, height - 1) !== 0 && height > 1) {
      for (let slot = 0; slot < slots; slot++) {
        const inclusion = tree.inclusion(forkId, height - 1, slot);
        if (inclusion?.late === true) plans.push(...planSlot(forkId, height - 1, slot, inclusion.salt));
      }
    }
    for (let slot = 0; slot < slots; slot++) {
      const inclusion = tree.inclusion(forkId, height, slot);
      if (inclusion !== null && !inclusion.late)
        plans.push(...planSlot(forkId, height, slot, inclusion.salt));
    }
    return plans;
  }

  return {
    slots,
    notes: total,
    planBlock,
    ownerAt,
    firstOwner,
    sequencerAt,
    tokenOfNote: notes.tokenOfNote,
    notesOf: notes.notesOf,
    contents: notes.contents,
  };
}

function senderOf(moves: readonly MovePlan[], otherwise: number): number {
  const first = moves[0];
  if (first === undefined) return otherwise;
  if (isActor(first.from)) return first.from;
  return isActor(first.to) ? first.to : otherwise;
}
