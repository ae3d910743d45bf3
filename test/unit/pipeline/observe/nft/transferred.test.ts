import { expect, it } from 'vitest';

import { transferredNfts } from '../../../../../pipeline/observe/nft/transferred.ts';
import { decodeBlock } from '../../../../../schemas/decode/index.ts';
import { ZERO_FELT, toFelt } from '../../../../../schemas/felt.ts';
import {
  ART,
  ITEMS,
  RIDDLE,
  accepted,
  batchEvent,
  busyBlock,
  makeBlock,
  transferEvent,
} from '../../../../support/chain-messages.ts';

const [ANNA, BERT] = [toFelt(0xa11an), toFelt(0xbe47n)];
const read = (message: ReturnType<typeof accepted>) =>
  transferredNfts({ contracts: message.contracts, value: Buffer.from(JSON.stringify(message)) });

it('reads single, batch and minted NFTs, and no token of an unknown standard', () => {
  const events = [
    transferEvent(ART, ZERO_FELT, BERT, 1n),
    batchEvent(ITEMS, ANNA, BERT, [
      [2n, 5n],
      [1n << 200n, 1n],
    ]),
    transferEvent(RIDDLE, ANNA, BERT, 3n),
    // Malformed: a number above 2^256.
    { ...transferEvent(ART, ANNA, BERT, 4n), data: [toFelt(1n), toFelt(1n), toFelt(1n)] },
  ];
  expect(read(accepted(makeBlock({ height: 1, transactions: [{ events }] }), 1))).toEqual([
    { token: ART, tokenId: '1', standard: 'erc721', isMint: true },
    { token: ITEMS, tokenId: '2', standard: 'erc1155', isMint: false },
    { token: ITEMS, tokenId: (1n << 200n).toString(), standard: 'erc1155', isMint: false },
  ]);
});

it('marks neither an issue of an ERC-1155 id nor a burn as a mint', () => {
  const events = [batchEvent(ITEMS, ZERO_FELT, BERT, [[2n, 5n]]), transferEvent(ART, ANNA, ZERO_FELT, 1n)];
  const found = read(accepted(makeBlock({ height: 1, transactions: [{ events }] }), 1));
  expect(found?.map(({ token, isMint }) => [token, isMint])).toEqual([
    [ITEMS, false],
    [ART, false],
  ]);
});

it('reads the NFTs of every transfer that the projections decode', () => {
  const message = accepted(busyBlock(1000, 30), 1);
  const expected = decodeBlock(message.block, message.contracts).transfers.filter(
    ({ tokenId }) => tokenId !== null,
  );
  expect(expected.length).toBeGreaterThan(0);
  expect(read(message)?.map(({ token, tokenId }) => [token, tokenId])).toEqual(
    expected.map(({ token, tokenId }) => [token, String(tokenId)]),
  );
});
