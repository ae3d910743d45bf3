import { toFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';

/*
 * Keccak-256 as of Ethereum, which node:crypto lacks (its SHA3-256 pads otherwise). A lane of 64 bits is two words of 32, the
 * lower first, because BigInt takes twenty times as long.
 */

const LANES = 25;
const ROUNDS = 24;
/** Bytes that are absorbed between two permutations. */
const RATE = 136;

/** The first eight bits of a shift register, by round, at bits 0, 1, 3, 7, 15, 31 and 63 of a lane. */
const ROUND_CONSTANTS = roundConstants();

/** From lane 1 on, where each lane moves and by how many bits it is rotated. */
const MOVES = Array.from({ length: LANES - 1 }, (_, step) => {
  let [x, y] = [1, 0];
  for (let done = 0; done < step; done += 1) [x, y] = [y, (2 * x + 3 * y) % 5];
  return { to: y + 5 * ((2 * x + 3 * y) % 5), bits: (((step + 1) * (step + 2)) / 2) % 64 };
});

function roundConstants(): Int32Array {
  const words = new Int32Array(2 * ROUNDS);
  let register = 1;
  for (let round = 0; round < ROUNDS; round += 1) {
    for (let power = 0; power < 7; power += 1) {
      const bit = 2 ** power - 1;
      if ((register & 1) === 1)
        words[2 * round + (bit >> 5)] = (words[2 * round + (bit >> 5)] ?? 0) ^ (1 << (bit & 31));
      register = register < 128 ? register << 1 : ((register << 1) & 0xff) ^ 0x71;
    }
  }
  return words;
}

/** Keccak-256 of a text in UTF-8, without its six highest bits. */
export function starknetKeccak(text: string): Felt {
  const bytes = new TextEncoder().encode(text);
  const state = new Int32Array(2 * LANES);
  const absorbed = new Uint8Array(state.buffer);
  const xor = (at: number, byte: number): void => void (absorbed[at] = (absorbed[at] ?? 0) ^ byte);
  for (const [index, byte] of bytes.entries()) {
    xor(index % RATE, byte);
    if (index % RATE === RATE - 1) permute(state);
  }
  xor(bytes.length % RATE, 1);
  xor(RATE - 1, 0x80);
  permute(state);
  const digest = BigInt(`0x${Buffer.from(absorbed.subarray(0, 32)).toString('hex')}`);
  return toFelt(digest & ((1n << 250n) - 1n));
}

function permute(state: Int32Array): void {
  for (let round = 0; round < ROUNDS; round += 1) {
    mixColumns(state);
    moveLanes(state);
    mixRows(state);
    for (let word = 0; word < 2; word += 1) flip(state, word, ROUND_CONSTANTS[2 * round + word] ?? 0);
  }
}

const flip = (words: Int32Array, at: number, bits: number): void =>
  void (words[at] = (words[at] ?? 0) ^ bits);

const columns = new Int32Array(10);
function mixColumns(state: Int32Array): void {
  columns.fill(0);
  for (let word = 0; word < 2 * LANES; word += 1) flip(columns, word % 10, state[word] ?? 0);
  for (let word = 0; word < 10; word += 1) {
    const right = (word + 2) % 10;
    // The other word of the same lane.
    const carried = (columns[right ^ 1] ?? 0) >>> 31;
    const change = (columns[(word + 8) % 10] ?? 0) ^ (((columns[right] ?? 0) << 1) | carried);
    for (let at = word; at < 2 * LANES; at += 10) flip(state, at, change);
  }
}

function moveLanes(state: Int32Array): void {
  let low = state[2] ?? 0;
  let high = state[3] ?? 0;
  for (let step = 0; step < MOVES.length; step += 1) {
    const { to, bits } = MOVES[step] ?? { to: 0, bits: 0 };
    const nextLow = state[2 * to] ?? 0;
    const nextHigh = state[2 * to + 1] ?? 0;
    state[2 * to] = rotated(low, high, bits);
    state[2 * to + 1] = rotated(high, low, bits);
    low = nextLow;
    high = nextHigh;
  }
}

/** A word of a lane that is rotated to the left. */
function rotated(word: number, other: number, bits: number): number {
  const shift = bits & 31;
  if (shift === 0) return bits < 32 ? word : other;
  return bits < 32 ? (word << shift) | (other >>> (32 - shift)) : (other << shift) | (word >>> (32 - shift));
}

const row = new Int32Array(10);
function mixRows(state: Int32Array): void {
  for (let start = 0; start < 2 * LANES; start += 10) {
    for (let word = 0; word < 10; word += 1) row[word] = state[start + word] ?? 0;
    for (let word = 0; word < 10; word += 1)
      flip(state, start + word, ~(row[(word + 2) % 10] ?? 0) & (row[(word + 4) % 10] ?? 0));
  }
}
