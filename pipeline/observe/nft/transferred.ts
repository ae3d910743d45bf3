import { decodeBlock } from '../../../schemas/decode/index.ts';
import { ZERO_FELT } from '../../../schemas/felt.ts';
import { chainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { jsonOf } from '../../log-reading.ts';
import { readBlockContracts } from '../block-contracts.ts';
import type { NftTask } from './store.ts';

/**
 * Reads which NFTs a message of `chain.blocks` transfers. Reverted blocks and blocks without NFT contracts are not decoded.
 *
 * @returns null where the message is invalid
 */
export function transferredNfts(value: Buffer): NftTask[] | null {
  const block = readBlockContracts(value);
  if (block === null) return null;
  const isNft = ({ standard }: { standard: string }): boolean =>
    standard === 'erc721' || standard === 'erc1155';
  if (block.type !== 'block.accepted' || !Object.values(block.contracts).some(isNft)) return [];
  const message = chainBlocksMessage.safeParse(jsonOf(value)).data;
  if (message === undefined) return null;
  return decodeBlock(message.block, message.contracts).transfers.flatMap(({ token, tokenId, kind, from }) =>
    tokenId === null
      ? []
      : [{ token, tokenId: tokenId.toString(), standard: kind, isMint: from === ZERO_FELT }],
  );
}
