import { isNft } from '../../../schemas/messages/common.ts';
import { ACTORS, NOBODY } from './actors.ts';
import type { Draws } from './draws.ts';
import { item, mix } from './hash.ts';
import type { Notes } from './notes.ts';
import type { Token } from './tokens.ts';

const SMALL_HOLDERS = 24;

export type Owners = {
  /** The owner in block 0. NFTs and a tenth of the ERC-20 notes are not minted yet. */
  first: (note: number) => number;
  /** The owner before a turn. */
  before: (forkId: number, note: number, turn: number) => number;
  /** The owner after the block at `height`. */
  at: (forkId: number, note: number, height: number) => number;
};

/** Who owns a note: the receiver of its last turn that took place. */
export function createOwners(
  seed: number,
  perBlock: number,
  { notes, draws, tokens }: { notes: Notes; draws: Draws; tokens: readonly Token[] },
): Owners {
  const { total } = notes;

  function first(note: number): number {
    const token = item(tokens, notes.tokenOfNote(note));
    if (isNft(token.standard)) return NOBODY;
    const chance = mix(seed, note, 0x0e3d, 0);
    if (chance % 10 === 0) return NOBODY;
    return (chance >>> 8) % (token.notes >= 1000 ? ACTORS : SMALL_HOLDERS);
  }

  function before(forkId: number, note: number, turn: number): number {
    for (let last = turn - total; last >= perBlock; last -= total) {
      const sent = draws.destination(forkId, last);
      if (sent !== null) return sent.to;
    }
    return first(note);
  }

  function at(forkId: number, note: number, height: number): number {
    const place = notes.turnOfNote(note);
    const end = (height + 1) * perBlock - 1;
    if (end < place) return first(note);
    let last = place + Math.floor((end - place) / total) * total;
    for (; last >= perBlock; last -= total) {
      const sent = draws.destination(forkId, last);
      if (sent !== null && !(sent.late && Math.floor(last / perBlock) === height)) return sent.to;
    }
    return first(note);
  }

  return { first, before, at };
}
