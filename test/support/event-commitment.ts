import { hash } from 'starknet';

import { FELT_PRIME } from '../../schemas/felt.ts';

/** Felts in any hex form. */
export interface EmittingTransaction<F extends string = string> {
  readonly hash: F;
  readonly events: { from_address: F; keys: F[]; data: F[] }[];
}

/** Root of a Patricia tree over any keys, a bit at a time, as the specification of the state tries has it. */
function genericRoot(leaves: ReadonlyMap<bigint, string>, height: number): string {
  const node = (keys: readonly bigint[], bits: number): { hash: string; path: bigint; length: number } => {
    const [only] = keys;
    if (bits === 0 && only !== undefined) return { hash: leaves.get(only) ?? '', path: 0n, length: 0 };
    const bit = 1n << BigInt(bits - 1);
    const sides = [
      keys.filter((key) => (key & bit) === 0n),
      keys.filter((key) => (key & bit) !== 0n),
    ] as const;
    const empty = sides.findIndex((side) => side.length === 0);
    if (empty === -1) {
      const [left, right] = sides.map((side) => finished(node(side, bits - 1)));
      return { hash: hash.computePoseidonHash(left ?? '', right ?? ''), path: 0n, length: 0 };
    }
    const child = node(keys, bits - 1);
    return {
      ...child,
      path: child.path + (empty === 0 ? 1n << BigInt(child.length) : 0n),
      length: child.length + 1,
    };
  };
  const finished = (of: { hash: string; path: bigint; length: number }): string =>
    of.length === 0
      ? of.hash
      : `0x${((BigInt(hash.computePoseidonHash(of.hash, of.path)) + BigInt(of.length)) % FELT_PRIME).toString(16)}`;
  return leaves.size === 0 ? '0x0' : finished(node([...leaves.keys()], height));
}

/** The event commitment of a block, by starknet.js and a tree over any keys. */
export function independentCommitment(transactions: readonly EmittingTransaction[]): bigint {
  const events = transactions.flatMap((transaction) =>
    transaction.events.map((event) => ({ transaction, event })),
  );
  return independentRoot(
    events.map(({ transaction, event: { from_address, keys, data } }) => [
      from_address,
      transaction.hash,
      keys.length,
      ...keys,
      data.length,
      ...data,
    ]),
  );
}

/** The root over leaves, each the hash of felts, by starknet.js and a tree over any keys. */
export function independentRoot(leaves: readonly (string | number | bigint)[][]): bigint {
  const hashes = leaves.map(
    (parts, index) => [BigInt(index), hash.computePoseidonHashOnElements(parts)] as const,
  );
  return BigInt(genericRoot(new Map(hashes), 64));
}
