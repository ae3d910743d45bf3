import { item, mix } from './hash.ts';
import { STRK, wideNumber, type Token } from './tokens.ts';

export type NoteItem = { id: bigint | null; amount: bigint };

/** The division of all value into notes, and the order of their turns. */
export type Notes = {
  total: number;
  /** The note that moves at a turn. */
  noteOfTurn: (turn: number) => number;
  /** The first turn of a note. */
  turnOfNote: (note: number) => number;
  tokenOfNote: (note: number) => number;
  notesOf: (token: number) => { first: number; count: number };
  /** The ids and amounts of a note, which never change. */
  contents: (token: number, note: number) => readonly NoteItem[];
};

export function createNotes(seed: number, perBlock: number, tokens: readonly Token[]): Notes {
  // Turns of a note are at least eight blocks apart, so that a transaction included one block late keeps the order.
  const wanted = tokens.reduce((sum, token) => sum + token.notes, 0);
  const scale = Math.max(1, Math.ceil((perBlock * 8) / wanted));
  const counts = tokens.map((token) => token.notes * scale);
  let total = counts.reduce((sum, count) => sum + count, 0);
  // Without a common factor of notes and moves per block, a note changes its position in the transaction.
  while (gcd(total, perBlock) !== 1 || gcd(total, 7919) !== 1) {
    counts[STRK] = item(counts, STRK) + 1;
    total++;
  }
  const firstNote: number[] = [];
  const tokenOfNote = new Uint16Array(total);
  let next = 0;
  for (const [token, count] of counts.entries()) {
    firstNote.push(next);
    tokenOfNote.fill(token, next, next + count);
    next += count;
  }
  const inverse = inverseOf(7919, total);
  const offset = seed % total;

  const noteOfTurn = (turn: number) => ((turn % total) * 7919 + offset) % total;
  const turnOfNote = (note: number) => (((note - offset + total) % total) * inverse) % total;
  return {
    total,
    noteOfTurn,
    turnOfNote,
    tokenOfNote: (note) => item(tokenOfNote, note),
    notesOf: (token) => ({ first: item(firstNote, token), count: item(counts, token) }),
    contents: createContents(seed, firstNote, tokens),
  };
}

function createContents(seed: number, firstNote: readonly number[], tokens: readonly Token[]) {
  const known = new Map<number, readonly NoteItem[]>();
  return (tokenIndex: number, note: number): readonly NoteItem[] => {
    const found = known.get(note);
    if (found !== undefined) return found;
    const made = contentsOf(seed, item(tokens, tokenIndex), note - item(firstNote, tokenIndex), note);
    known.set(note, made);
    return made;
  };
}

function contentsOf(seed: number, token: Token, ordinal: number, note: number): readonly NoteItem[] {
  const tokenIndex = token.index;
  const chance = mix(seed, note, tokenIndex, 0xa3);
  const idOf = (n: number): bigint => {
    switch (token.numbers) {
      case 'felt-ids':
        return wideNumber(seed, tokenIndex, n) >> 6n;
      case 'wide-ids':
        return n % 8 === 0 ? (1n << 256n) - 1n - BigInt(n) : wideNumber(seed, tokenIndex, n);
      case 'sequence':
      case 'units':
      case 'zero':
      case 'beyond-128-bits':
        return BigInt(n);
    }
  };
  if (token.standard === 'erc721') return [{ id: idOf(ordinal), amount: 1n }];
  if (token.standard === 'erc1155') {
    const size = item([1, 1, 1, 1, 2, 3, 6, 0], chance % 8);
    return Array.from({ length: size }, (_, i) => ({
      id: idOf(mix(seed, note, i, 0xb7) % 24),
      amount: BigInt(1 + (mix(seed, note, i, 0xc1) % (i === 2 ? 1_000_000 : 20))),
    }));
  }
  if (token.numbers === 'zero') return [{ id: null, amount: 0n }];
  if (token.numbers === 'beyond-128-bits')
    return [{ id: null, amount: wideNumber(seed, tokenIndex, note) >> 14n }];
  if (chance % 97 === 0) return [{ id: null, amount: 0n }];
  // Log-uniform from a thousandth to ten thousand whole tokens.
  const places = Math.min(token.decimals, 30);
  const exponent = Math.max(0, places - 9) + (chance % 7);
  return [{ id: null, amount: BigInt(1_000_000 + (chance % 8_999_993)) * 10n ** BigInt(exponent) }];
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}

function inverseOf(value: number, modulus: number): number {
  let [r0, r1, t0, t1] = [modulus, value % modulus, 0, 1];
  while (r1 !== 0) {
    const quotient = Math.floor(r0 / r1);
    [r0, r1] = [r1, r0 - quotient * r1];
    [t0, t1] = [t1, t0 - quotient * t1];
  }
  return ((t0 % modulus) + modulus) % modulus;
}
