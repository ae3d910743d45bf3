import { afterAll, beforeAll, expect, it } from 'vitest';

import { ProofError, verifyProof } from '../../../client/src/proof.ts';
import { decodeBlock } from '../../../schemas/decode/index.ts';
import { changedAt, provedPlaces } from '../../support/proof-changes.ts';
import { proofWorld } from '../../support/proof-world.ts';
import type { ProofWorld } from '../../support/proof-world.ts';
import { createRandom } from '../../support/random.ts';
import { trueChain } from '../../support/true-chain.ts';

/** Every proof of many random transfers verifies, and none with a change anywhere does. */

const PROOFS = 1000;
const SEED = Number(process.env['PROOF_SEED'] ?? Date.now() % 1_000_000);
let world: ProofWorld;

beforeAll(async () => {
  world = await proofWorld();
});
afterAll(() => world?.close());

it(`proves ${PROOFS} random transfers, and refuses each proof with a change (seed ${SEED})`, async () => {
  const random = createRandom(SEED);
  const { bodies, contracts } = await trueChain({ blocks: 120, transfersPerBlock: 60 });
  await world.write(bodies, contracts);
  const all = bodies.flatMap((body) =>
    decodeBlock(body, contracts).transfers.map((transfer) => ({ body, transfer })),
  );
  const [fields, changed] = [new Set<string>(), new Set<string>()];
  const fieldOf = (place: readonly (string | number)[]): string =>
    place.filter((name) => !/^\d/.test(String(name))).join('.');
  for (let index = 0; index < PROOFS; index += 1) {
    const { body, transfer } = random.pick(all);
    const proof = await world.prove(transfer);
    expect(await verifyProof(proof)).toEqual({ number: body.height, hash: body.hash });
    expect(proof.transfer).toMatchObject({
      token_address: transfer.token,
      from_address: transfer.from,
      to_address: transfer.to,
      value: String(transfer.amount),
      nft_token_id: String(transfer.tokenId ?? ''),
    });
    const places = provedPlaces(proof);
    const place = random.pick(places);
    const other = changedAt(proof, place, (below) => random.below(below));
    await expect(verifyProof(other), JSON.stringify([place, proof])).rejects.toThrow(ProofError);
    for (const one of places) fields.add(fieldOf(one));
    changed.add(fieldOf(place));
  }
  expect(changed).toEqual(fields);
  console.log(`${PROOFS} proofs of ${all.length} transfers, changes in ${changed.size} fields`);
});
