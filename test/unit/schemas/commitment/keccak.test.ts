import { hash } from 'starknet';
import { expect, test } from 'vitest';

import { starknetKeccak } from '../../../../schemas/commitment/keccak.ts';

const text = 'Execution failed. Failure reason: "u256_sub Überlauf €𝄞" '.repeat(20);

// Of more bytes than characters; 136 bytes are absorbed at a time.
test.each([0, 1, 7, 8, 33, 55, 130, 131, 132, 133, 134, 135, 136, 137, 267, 268, 271, 272, 273, 1000])(
  'hashes %i characters as starknet.js does',
  (length) => {
    const some = text.slice(0, length).toWellFormed();
    expect(BigInt(starknetKeccak(some))).toBe(hash.starknetKeccak(some));
  },
);

test.each([135, 136, 137, 271, 272, 273])('hashes %i bytes as starknet.js does', (length) => {
  const ascii = 'x'.repeat(length);
  expect(BigInt(starknetKeccak(ascii))).toBe(hash.starknetKeccak(ascii));
});
