import { hash } from 'starknet';

import type { HashedBlock } from '../../schemas/commitment/block-hash.ts';

const ascii = (text: string): bigint => BigInt(`0x${Buffer.from(text, 'ascii').toString('hex')}`);

/** The hash of a block of version 0.13.2 or later by its header, by starknet.js. */
export function independentBlockHash(block: HashedBlock): bigint {
  const { header, starknet_version: version } = block;
  if (header === undefined || header.l2_gas_price === null) throw new Error('a block without a header');
  const lengths = [block.transaction_count ?? NaN, block.event_count ?? NaN, header.state_diff_length];
  const mode = header.l1_da_mode === 'BLOB' ? '8' : '0';
  const counts = BigInt(
    `0x${lengths.map((length) => length.toString(16).padStart(16, '0')).join('')}${mode}${'0'.repeat(15)}`,
  );
  const prices = [header.l1_gas_price, header.l1_data_gas_price, header.l2_gas_price]
    .flatMap(({ price_in_wei, price_in_fri }) => [price_in_wei, price_in_fri])
    .map(BigInt);
  const isOld = ['0.13.2', '0.13.2.1', '0.13.3'].includes(version);
  const list = [
    ascii(isOld ? 'STARKNET_BLOCK_HASH0' : 'STARKNET_BLOCK_HASH1'),
    block.height,
    header.new_root,
    block.sequencer_address,
    block.timestamp,
    counts,
    header.state_diff_commitment,
    header.transaction_commitment,
    header.event_commitment,
    header.receipt_commitment,
    ...(isOld
      ? prices.slice(0, 4)
      : [hash.computePoseidonHashOnElements([ascii('STARKNET_GAS_PRICES0'), ...prices])]),
    ascii(version),
    0n,
    block.parent_hash,
  ];
  return BigInt(hash.computePoseidonHashOnElements(list.map(BigInt)));
}
