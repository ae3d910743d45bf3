import { hash } from 'node:crypto';

import { ZERO_FELT } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { rowVersion, sides, versionColumns } from '../chain-rows.ts';
import { descending } from '../descending.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

const HALF_BITS = 128n;
const WIDE_ID = 1n << 127n;

/**
 * One number for contract and id: the upper half is half of a hash of the contract; the lower half is the id, or half of
 * its hash if it does not fit. So nobody can construct two NFTs with one number, except within a contract of their own.
 */
export function nftNumber(token: Felt, id: bigint): bigint {
  const below = id < WIDE_ID ? id : WIDE_ID | (halfHash(id.toString(16)) >> 1n);
  return (halfHash(token) << HALF_BITS) | below;
}

function halfHash(text: string): bigint {
  return BigInt(`0x${hash('sha256', text, 'hex').slice(0, 32)}`);
}

const placeColumns = [
  { name: 'block_desc', type: 'UInt32' },
  { name: 'position_desc', type: 'UInt32' },
  { name: 'item_desc', type: 'UInt32' },
] as const;

export const nftHoldings: BlockProjection = {
  kind: 'clickhouse',
  name: 'nft-holdings',
  version: 1,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: {
    nft_moves: {
      columns: [
        { name: 'account', type: 'FixedString(32)' },
        { name: 'token', type: 'FixedString(32)' },
        { name: 'token_id', type: 'UInt256' },
        ...placeColumns,
        { name: 'leg', type: 'UInt8' },
        { name: 'kind', type: 'LowCardinality(String)' },
        { name: 'nft', type: 'UInt256' },
        ...versionColumns,
      ],
    },
    nft_places: { columns: [{ name: 'nft', type: 'UInt256' }, ...placeColumns, ...versionColumns] },
  },
  project(item) {
    const version = rowVersion(item);
    const moved = item.decoded.transfers.flatMap((transfer) => {
      const { token, tokenId } = transfer;
      if (tokenId === null) return [];
      const place = {
        nft: nftNumber(token, tokenId),
        block_desc: descending(item.message.block.height),
        position_desc: descending(transfer.position),
        item_desc: descending(transfer.item),
        ...version,
      };
      return [{ transfer, tokenId, place }];
    });
    return {
      nft_places: moved.map(({ place }) => place),
      nft_moves: moved.flatMap(({ transfer, tokenId, place }) =>
        sides(transfer)
          .filter(({ account }) => account !== ZERO_FELT)
          .map(({ account, leg }) => ({
            account,
            token: transfer.token,
            token_id: tokenId,
            leg,
            kind: transfer.kind,
            ...place,
          })),
      ),
    };
  },
};
