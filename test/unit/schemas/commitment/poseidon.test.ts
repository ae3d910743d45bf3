import fc from 'fast-check';
import { hash } from 'starknet';
import { expect, test } from 'vitest';

import { feltOf, hashEdge, hashFelts, hashPair } from '../../../../schemas/commitment/poseidon.ts';
import { FELT_PRIME, toFelt } from '../../../../schemas/felt.ts';

/** Any felts, and those at the ends of the field and of limbs. */
const felt = fc
  .oneof(
    fc.bigInt({ min: 0n, max: FELT_PRIME - 1n }),
    fc.bigInt({ min: 0n, max: 3n }),
    fc.bigInt({ min: FELT_PRIME - 3n, max: FELT_PRIME - 1n }),
    fc
      .tuple(fc.nat({ max: 250 }), fc.bigInt({ min: -1n, max: 1n }))
      .map(([bit, offset]) => (1n << BigInt(bit)) + offset),
  )
  .map(toFelt);

test('hashFelts hashes as starknet.js does', () => {
  fc.assert(
    fc.property(fc.array(felt, { maxLength: 7 }), (felts) => {
      expect(BigInt(feltOf(hashFelts(felts)))).toBe(BigInt(hash.computePoseidonHashOnElements(felts)));
    }),
    { numRuns: 200 },
  );
});

test('hashPair hashes two hashes as starknet.js does', () => {
  fc.assert(
    fc.property(felt, felt, (a, b) => {
      const [left, right] = [hashFelts([a]), hashFelts([b])];
      const expected = hash.computePoseidonHash(feltOf(left), feltOf(right));
      expect(BigInt(feltOf(hashPair(left, right)))).toBe(BigInt(expected));
    }),
    { numRuns: 100 },
  );
});

test('hashEdge adds its length to the hash of its child and an empty path', () => {
  const child = hashFelts([toFelt(7n)]);
  const expected = (BigInt(hash.computePoseidonHash(feltOf(child), '0x0')) + 61n) % FELT_PRIME;
  expect(BigInt(feltOf(hashEdge(child, 61)))).toBe(expected);
});
