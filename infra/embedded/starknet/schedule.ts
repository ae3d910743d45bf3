import { ACTORS, NOBODY, isActor, sequencerAt } from './actors.ts';
import { createDraws } from './draws.ts';
import type { Density, Kind } from './draws.ts';
import type { ForkTree } from './forks.ts';
import { item, mix } from './hash.ts';
import { createNotes } from './notes.ts';
import { createOwners } from './owners.ts';
import { ETH, STRK, type Token, type TokenTable } from './tokens.ts';

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

const FEE_ENDOWMENTS: readonly bigint[] = [1_000_000n * 10n ** 18n, 1_000n * 10n ** 18n];

/** What block 0 grants every actor to pay fees; the most active one spends about 0.02 STRK a block. */
export const endowmentOf = ({ index }: Token): bigint => FEE_ENDOWMENTS[index] ?? 0n;

export type Schedule = ReturnType<typeof createSchedule>;

/**
 * The schedule determines the transfers of any block without a replay. All value is divided into notes (an ERC-721 id, a
 * set of ERC-1155 amounts, a fixed amount of an ERC-20). The n-th move of the chain belongs to a known note, so that each
 * note has its turn once in `notes` moves, and its owner at a height is the receiver of its last turn that took place. So
 * nobody sends what they do not hold, on any fork.
 */
export function createSchedule(seed: number, density: Density, tree: ForkTree, tokens: TokenTable) {
  const { slots, movesPerSlot } = density;
  const notes = createNotes(seed, slots * movesPerSlot, tokens.list);
  const draws = createDraws(seed, density, tree);
  const owners = createOwners(seed, slots * movesPerSlot, { notes, draws, tokens: tokens.list });

  function movesOf(forkId: number, height: number, slot: number, salt: number): MovePlan[] {
    const moves: MovePlan[] = [];
    for (let move = 0; move < movesPerSlot; move++) {
      const to = draws.receiverOf(height, slot, move, salt);
      if (to === null) continue;
      const turn = (height * slots + slot) * movesPerSlot + move;
      const note = notes.noteOfTurn(turn);
      const from = owners.before(forkId, note, turn);
      // Burning a note that is not minted is no transfer.
      if (from !== NOBODY || to !== NOBODY) moves.push({ note, from, to });
    }
    return moves;
  }

  function planSlot(forkId: number, height: number, slot: number, salt: number): TxPlan[] {
    const kind = draws.kindOf(height, slot, salt);
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
    tokens,
    notes: notes.total,
    planBlock,
    ownerAt: owners.at,
    firstOwner: owners.first,
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
