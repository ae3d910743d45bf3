import type { Row } from '../../infra/clickhouse/row-binary.ts';
import type { BlockItem, ClickHouseProjection } from '../../projections/define.ts';
import { decodeBlock } from '../../schemas/decode/index.ts';
import { STRK_TOKEN, ZERO_FELT, toFelt } from '../../schemas/felt.ts';
import type { ChainBlocksMessage } from '../../schemas/messages/chain-blocks.ts';
import {
  ART,
  COIN,
  ITEMS,
  RIDDLE,
  SEQUENCER,
  accepted,
  batchEvent,
  makeBlock,
  transferEvent,
} from './chain-messages.ts';

export const ANNA = toFelt(0xa11an);
export const BERT = toFelt(0xbe47n);

export const blockItem = (message: ChainBlocksMessage, offset = 7): BlockItem => ({
  message,
  decoded: decodeBlock(message.block, message.contracts),
  partition: 3,
  offset,
});

/** The rows of all tables of a projection. */
export const rowsOf = (projection: ClickHouseProjection, message: ChainBlocksMessage): Row[] =>
  Object.values(projection.project(blockItem(message))).flat();

/**
 * Height 5000: a coin transfer with its fee; an NFT minted; a batch of two items to oneself; a transfer of a contract
 * of unknown standard; and an event of no token at position 5.
 */
export const sampleBlock = makeBlock({
  height: 5000,
  transactions: [
    {
      fee: '9',
      events: [transferEvent(COIN, ANNA, BERT, 12n), transferEvent(STRK_TOKEN, ANNA, SEQUENCER, 9n)],
    },
    { events: [transferEvent(ART, ZERO_FELT, BERT, 77n)] },
    {
      events: [
        batchEvent(ITEMS, ANNA, ANNA, [
          [1n, 10n],
          [2n, 20n],
        ]),
        transferEvent(RIDDLE, BERT, ANNA, 4n),
        { from_address: COIN, keys: [toFelt(1n)], data: [] },
      ],
    },
  ],
});
export const sampleMessage = accepted(sampleBlock, 100, 'backfill-1');
export const sampleHashes = sampleBlock.transactions.map(({ hash }) => hash);

/** As stored: 0xffffffff - 5000. */
export const BLOCK_DESC = 4_294_962_295;
/** A small position or item as stored. */
export const last = (position: number): number => 4_294_967_295 - position;
