import { toFelt } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockBody, BlockHeader } from '../messages/chain-blocks.ts';
import { feltOf, hashFelts } from './poseidon.ts';
import { FIRST_WITH_COMMITMENTS, isOlderThan } from './versions.ts';

/** From this version on, the prices of gas are hashed on their own, with that of L2 gas. */
const FIRST_WITH_L2_GAS = [0, 13, 4] as const;

/** What fits into a felt and has one spelling there: a leading zero byte would vanish, and a letter beyond ASCII be cut. */
const HASHED_TEXT = /^[\x20-\x7e]{0,31}$/;

/** Whether a text can be part of a hash. */
export function isHashable(text: string): boolean {
  return HASHED_TEXT.test(text);
}

export type HashedBlock = Omit<BlockBody, 'hash' | 'event_check' | 'transactions'>;

/** The hash of a block by its header; null if it cannot be computed: a version before 0.13.2, or a header that is not whole. */
export function blockHash(block: HashedBlock): Felt | null {
  const { header, starknet_version, transaction_count, event_count } = block;
  if (header === undefined || transaction_count === null || event_count === null) return null;
  if (isOlderThan(starknet_version, FIRST_WITH_COMMITMENTS) || !isHashable(starknet_version)) return null;
  const hasL2Gas = !isOlderThan(starknet_version, FIRST_WITH_L2_GAS);
  const prices = pricesOf(header, hasL2Gas);
  if (prices === null) return null;
  const counts =
    (BigInt(transaction_count) << 192n) +
    (BigInt(event_count) << 128n) +
    (BigInt(header.state_diff_length) << 64n) +
    (header.l1_da_mode === 'BLOB' ? 1n << 63n : 0n);
  return feltOf(
    hashFelts([
      textFelt(hasL2Gas ? 'STARKNET_BLOCK_HASH1' : 'STARKNET_BLOCK_HASH0'),
      toFelt(BigInt(block.height)),
      header.new_root,
      block.sequencer_address,
      toFelt(BigInt(block.timestamp)),
      toFelt(counts),
      header.state_diff_commitment,
      header.transaction_commitment,
      header.event_commitment,
      header.receipt_commitment,
      ...prices,
      textFelt(starknet_version),
      toFelt(0n),
      block.parent_hash,
    ]),
  );
}

function pricesOf(
  { l1_gas_price, l1_data_gas_price, l2_gas_price }: BlockHeader,
  hasL2Gas: boolean,
): Felt[] | null {
  const felts = (prices: readonly BlockHeader['l1_gas_price'][]): Felt[] =>
    prices.flatMap(({ price_in_wei, price_in_fri }) => [
      toFelt(BigInt(price_in_wei)),
      toFelt(BigInt(price_in_fri)),
    ]);
  if (!hasL2Gas) return felts([l1_gas_price, l1_data_gas_price]);
  if (l2_gas_price === null) return null;
  const all = felts([l1_gas_price, l1_data_gas_price, l2_gas_price]);
  return [feltOf(hashFelts([textFelt('STARKNET_GAS_PRICES0'), ...all]))];
}

/** ASCII text as a felt. */
function textFelt(text: string): Felt {
  return toFelt(BigInt(`0x0${Buffer.from(text, 'ascii').toString('hex')}`));
}
