import { describe, expect, it } from 'vitest';

import { ProofError, verifyProof } from '../../../client/src/proof.ts';
import type { TransferProof } from '../../../client/src/proof.ts';
import { proofExample } from '../../../schemas/api/proof-example.ts';
import { proofAnswer } from '../../../schemas/api/proofs.ts';
import { changedAt, provedPlaces } from '../../support/proof-changes.ts';
import { FELT_PRIME } from '../../../schemas/felt.ts';
import { createRandom } from '../../support/random.ts';

/** A proof of a transfer on Sepolia, whose block was recorded from a node. */
const proof: TransferProof = proofExample;
const { block, event, path, transfer } = proof;
const reasonOf = async (changed: TransferProof): Promise<string> => {
  try {
    await verifyProof(changed);
    return 'verified';
  } catch (error) {
    return error instanceof ProofError ? error.reason : String(error);
  }
};

describe('verifyProof', () => {
  it('verifies a real proof, which is the example of the route, and returns its block', async () => {
    expect(proofAnswer.parse(proofExample)).toEqual(proofExample);
    expect(await verifyProof(proof)).toEqual({
      number: 3_100_000,
      hash: '0x01640b846e71502526539c32c8420cd7cb0f28d83ece2e6e71aeaf7c97960bb2',
    });
  });

  const random = createRandom(7);
  const places = provedPlaces(proof);
  it.each(places.map((place) => [place.join('.'), place] as const))(
    'refuses a proof with another %s',
    async (_name, place) => {
      expect(places.length).toBeGreaterThan(50);
      for (let times = 0; times < 3; times += 1)
        await expect(verifyProof(changedAt(proof, place, (below) => random.below(below)))).rejects.toThrow(
          ProofError,
        );
    },
  );

  it.each<[string, string, TransferProof]>([
    [
      'an event with another amount',
      'path',
      { ...proof, event: { ...event, data: [...event.data].with(2, '0x1') } },
    ],
    [
      'an event without its last felt',
      'path',
      { ...proof, event: { ...event, data: event.data.slice(0, -1) } },
    ],
    [
      'a felt moved from data to keys',
      'path',
      {
        ...proof,
        event: { ...event, keys: [...event.keys, event.data[0] ?? ''], data: event.data.slice(1) },
      },
    ],
    ['no path', 'path', { ...proof, path: [] }],
    ['a path without its last step', 'path', { ...proof, path: path.slice(0, -1) }],
    ['a path with one step more', 'path', { ...proof, path: [...path, ...path.slice(-1)] }],
    ['steps in another order', 'path', { ...proof, path: path.toReversed() }],
    ['another index', 'path', { ...proof, event: { ...event, index: 0 } }],
    ['another root', 'path', { ...proof, root: '0x1' }],
    [
      'the commitment of another block',
      'path',
      { ...proof, block: { ...block, event_commitment: '0x1' }, root: '0x1' },
    ],
    ['an event beyond the count of the header', 'path', { ...proof, block: { ...block, event_count: 1 } }],
    ['another hash of the block', 'block_hash', { ...proof, block: { ...block, hash: '0x1' } }],
    ['another parent', 'block_hash', { ...proof, block: { ...block, parent_hash: block.hash } }],
    [
      'a version whose hash is another',
      'block_hash',
      { ...proof, block: { ...block, starknet_version: '0.13.1' } },
    ],
    ['no version', 'block_hash', { ...proof, block: { ...block, starknet_version: '' } }],
    ['no price of L2 gas', 'block_hash', { ...proof, block: { ...block, l2_gas_price: null } }],
    ['a transfer of another value', 'transfer', { ...proof, transfer: { ...transfer, value: '1' } }],
    [
      'a transfer to the sender',
      'transfer',
      { ...proof, transfer: { ...transfer, to_address: transfer.from_address } },
    ],
    [
      'a transfer of another token',
      'transfer',
      { ...proof, transfer: { ...transfer, token_address: '0x1' } },
    ],
    [
      'a later item of an event without items',
      'transfer',
      { ...proof, transfer: { ...transfer, event_index: 2 ** 20 + 1 } },
    ],
    ['a transfer of another event', 'transfer', { ...proof, transfer: { ...transfer, event_index: 0 } }],
    ['a felt above the field', 'format', { ...proof, root: `0x0${'f'.repeat(63)}` }],
    [
      'an edge without bits of its length',
      'format',
      { ...proof, path: path.with(2, { kind: 'edge', length: 62, bits: `0x${(2n ** 62n).toString(16)}` }) },
    ],
    [
      'an edge of no length',
      'format',
      { ...proof, path: [{ kind: 'edge', length: 0, bits: '0x0' }, ...path] },
    ],
    [
      'a price that is hashed as the true one',
      'format',
      {
        ...proof,
        block: {
          ...block,
          l1_gas_price: {
            ...block.l1_gas_price,
            price_in_wei: String(BigInt(block.l1_gas_price.price_in_wei) + FELT_PRIME),
          },
        },
      },
    ],
    [
      'an edge longer than memory',
      'format',
      { ...proof, path: [{ kind: 'edge', length: 2 ** 40, bits: '0x0' }, ...path] },
    ],
    [
      'a time with another spelling',
      'format',
      { ...proof, block: { ...block, timestamp: '2025-11-22T24:00:00Z' } },
    ],
    [
      'a day that no month has',
      'format',
      { ...proof, block: { ...block, timestamp: '2025-02-30T00:00:00Z' } },
    ],
    ['a negative count', 'format', { ...proof, block: { ...block, state_diff_length: -1 } }],
    ['a count that is no integer', 'format', { ...proof, block: { ...block, state_diff_length: 5.5 } }],
  ])('says of %s that %s fails', async (_what, reason, changed) => {
    expect(await reasonOf(changed)).toBe(reason);
  });

  it.each([
    [null],
    [{}],
    [{ ...proof, path: null }],
    [{ ...proof, event: {} }],
    [{ ...proof, block: undefined }],
    [{ ...proof, block: { ...proof.block, starknet_version: [proof.block.starknet_version] } }],
    [{ ...proof, finality: undefined, transfer: { ...proof.transfer, status: undefined } }],
    [{ ...proof, finality: 'FOO', transfer: { ...proof.transfer, status: 'FOO' } }],
  ])('refuses what is no proof', async (given) => {
    expect(await reasonOf(given as unknown as TransferProof)).toBe('format');
  });
});
