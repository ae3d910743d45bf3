import { createHash } from 'node:crypto';

import { FELT_PRIME, toFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';
import { LIMBS, LIMB_BITS, NUMBER_BYTES, ROUNDS, layout, poseidonModule } from './wasm.ts';

/** A hash as the module holds it: nine limbs in Montgomery form. */
export type Digest = Int32Array;

interface PoseidonModule {
  readonly memory: { readonly buffer: ArrayBuffer };
  multiply(a: number, b: number, out: number): void;
  add(a: number, b: number): void;
  permute(): void;
}

const { exports } = new WebAssembly.Instance(new WebAssembly.Module(poseidonModule()));
// The module is the one that is generated beside.
const wasm = exports as unknown as PoseidonModule;
const memory = new Int32Array(wasm.memory.buffer);

/** Numbers in memory, each by its address. */
const FIRST = layout.state;
const SECOND = FIRST + NUMBER_BYTES;
const THIRD = SECOND + NUMBER_BYTES;
const OPERAND = layout.operand;
/** Factors that convert into Montgomery form, and back. */
const INTO = layout.constants + 3 * NUMBER_BYTES * (ROUNDS + 1);
const BACK = INTO + NUMBER_BYTES;

const LIMB_MASK = 2 ** LIMB_BITS - 1;
const R = 1n << BigInt(LIMBS * LIMB_BITS);
/** A value below the prime in Montgomery form. */
const digestOf = (value: bigint): Digest => digits((value * R) % FELT_PRIME);
const digits = (value: bigint): Digest =>
  Int32Array.from({ length: LIMBS }, (_, limb) =>
    Number((value >> BigInt(limb * LIMB_BITS)) & BigInt(LIMB_MASK)),
  );
const store = (address: number, number: Digest): void => memory.set(number, address / 4);
const read = (address: number): Digest => memory.slice(address / 4, address / 4 + LIMBS);

const [ZERO, ONE, TWO] = [digestOf(0n), digestOf(1n), digestOf(2n)];
store(INTO, digits((R * R) % FELT_PRIME));
store(BACK, digits(1n));
for (let index = 0; index < 3 * ROUNDS; index += 1) {
  const constant = createHash('sha256').update(`Hades${index}`).digest('hex');
  store(layout.constants + NUMBER_BYTES * index, digestOf(BigInt(`0x${constant}`)));
}

/** The bytes of the felt that is loaded. */
const bytes = Buffer.alloc(32);
/** A felt in words of 32 bits, lowest first, and a zero. */
const words = new Int32Array(9);

/** Writes a felt in Montgomery form to OPERAND. By hand: BigInt takes ten times as long. */
function loadFelt(felt: Felt): void {
  bytes.write(felt.slice(2), 'hex');
  for (let word = 0; word < 8; word += 1) words[word] = bytes.readInt32BE(28 - 4 * word);
  for (let limb = 0; limb < LIMBS; limb += 1) {
    const [word, shift] = [(limb * LIMB_BITS) >> 5, (limb * LIMB_BITS) & 31];
    // 29 bits from bit 3 or below are all in one word.
    const higher = shift > 3 ? (words[word + 1] ?? 0) << (32 - shift) : 0;
    memory[OPERAND / 4 + limb] = (((words[word] ?? 0) >>> shift) | higher) & LIMB_MASK;
  }
  wasm.multiply(OPERAND, INTO, OPERAND);
}

/** Poseidon over any number of felts, as `poseidon_hash_many`: padded by 1 and zeroes to an even number. */
export function hashFelts(felts: readonly Felt[]): Digest {
  memory.fill(0, FIRST / 4, OPERAND / 4);
  for (const [index, felt] of felts.entries()) {
    loadFelt(felt);
    wasm.add(index % 2 === 0 ? FIRST : SECOND, OPERAND);
    if (index % 2 === 1) wasm.permute();
  }
  store(OPERAND, ONE);
  wasm.add(felts.length % 2 === 0 ? FIRST : SECOND, OPERAND);
  wasm.permute();
  return read(FIRST);
}

/** Poseidon over two hashes, as `poseidon_hash`. */
export function hashPair(left: Digest, right: Digest): Digest {
  store(FIRST, left);
  store(SECOND, right);
  store(THIRD, TWO);
  wasm.permute();
  return read(FIRST);
}

/** A Patricia edge of zeroes above a node. */
export function hashEdge(child: Digest, length: number): Digest {
  store(FIRST, hashPair(child, ZERO));
  store(OPERAND, digestOf(BigInt(length)));
  wasm.add(FIRST, OPERAND);
  return read(FIRST);
}

export function feltOf(digest: Digest): Felt {
  store(OPERAND, digest);
  wasm.multiply(OPERAND, BACK, OPERAND);
  const value = read(OPERAND).reduceRight((sum, limb) => (sum << BigInt(LIMB_BITS)) + BigInt(limb), 0n);
  // The module leaves a multiple of the prime.
  return toFelt(((value % FELT_PRIME) + FELT_PRIME) % FELT_PRIME);
}
