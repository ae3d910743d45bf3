import { decodeEvent, isMalformed } from '../../../schemas/decode/event.ts';
import { ZERO_FELT } from '../../../schemas/felt.ts';
import { isNft } from '../../../schemas/messages/common.ts';
import { readEventsOf } from '../block-contracts.ts';
import type { LoggedBlock } from '../block-feed.ts';
import type { NftTask } from './store.ts';

/**
 * Reads which NFTs a block transfers. Only the events of NFT contracts are parsed.
 *
 * @returns null where one of them is invalid
 */
export function transferredNfts({
  contracts,
  value,
}: Pick<LoggedBlock, 'contracts' | 'value'>): NftTask[] | null {
  const nftContracts = Object.entries(contracts).filter(([, { standard }]) => isNft(standard));
  if (nftContracts.length === 0) return [];
  const events = readEventsOf(new Set(nftContracts.map(([address]) => address)), value);
  return (
    events?.flatMap((event) => {
      const token = event.from_address;
      const outcome = decodeEvent(event, contracts[token]?.standard ?? 'unknown');
      if (outcome === null || isMalformed(outcome)) return [];
      return outcome.items.flatMap(({ kind, tokenId }) => {
        // An ERC-1155 id is issued many times, and exists since the first.
        const isMint = kind === 'erc721' && outcome.from === ZERO_FELT;
        return tokenId === null ? [] : [{ token, tokenId: tokenId.toString(), standard: kind, isMint }];
      });
    }) ?? null
  );
}
