import { decodeBlock } from '../../../schemas/decode/index.ts';
import { ZERO_FELT } from '../../../schemas/felt.ts';
import { chainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { jsonOf } from '../../log-reading.ts';
import { readBlockNews } from '../block-news.ts';
import type { NftTask } from './store.ts';

/**
 * The NFTs that a message of `chain.blocks` tells a transfer of; null where it cannot be read. A block without a contract
 * of NFTs, or one that is taken back, is not read further than that.
 */
export function nftsOf(value: Buffer): NftTask[] | null {
  const news = readBlockNews(value);
  if (news === null) return null;
  const isNft = ({ standard }: { standard: string }): boolean =>
    standard === 'erc721' || standard === 'erc1155';
  if (news.type !== 'block.accepted' || !Object.values(news.contracts).some(isNft)) return [];
  const message = chainBlocksMessage.safeParse(jsonOf(value)).data;
  if (message === undefined) return null;
  return decodeBlock(message.block, message.contracts).transfers.flatMap(({ token, tokenId, kind, from }) =>
    tokenId === null
      ? []
      : [{ token, tokenId: tokenId.toString(), standard: kind, isMint: from === ZERO_FELT }],
  );
}
