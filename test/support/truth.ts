import type { SimulatedNode } from './starknet/node.ts';
import type { ServedTransfer } from './service.ts';

/** A transfer as the simulated node intended it, independent of the decoder. */
export type Truth = ReturnType<SimulatedNode['transfersAt']>[number];

export const hex = (value: bigint): string => `0x${value.toString(16).padStart(64, '0')}`;

/** A transfer as one line of text, to compare expected and served rows. */
export const trueRow = (row: Truth): string =>
  [
    row.block,
    row.item * 1_048_576 + row.position,
    hex(row.token),
    hex(row.from),
    hex(row.to),
    row.standard,
    row.standard === 'erc721' ? '1' : row.amount,
    row.tokenId ?? '',
    hex(BigInt(row.txHash)),
    row.fee,
    row.isFee,
    row.reverted ? 'REVERTED' : 'SUCCEEDED',
  ].join(' ');
export const servedRow = (row: ServedTransfer): string =>
  [
    row.block,
    row.event_index,
    row.token_address,
    row.from_address,
    row.to_address,
    row.kind,
    row.value,
    row.nft_token_id,
    row.txhash,
    row.fee,
    row.is_fee,
    row.execution_status,
  ].join(' ');
