import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { encodeRows } from '../../../infra/clickhouse/row-binary.ts';
import type { Row } from '../../../infra/clickhouse/row-binary.ts';
import { accountFeed } from '../../../projections/account-feed/projector.ts';
import { accountLedger } from '../../../projections/account-ledger/projector.ts';
import type { BlockItem, ClickHouseProjection } from '../../../projections/define.ts';
import { indexedBlocks } from '../../../projections/indexed-blocks/projector.ts';
import { chainProjections } from '../../../projections/index.ts';
import { nftTransfers } from '../../../projections/nft-transfers/projector.ts';
import { transferCounts } from '../../../projections/transfer-counts/projector.ts';
import { transfers } from '../../../projections/transfers/projector.ts';
import { txIndex } from '../../../projections/tx-index/projector.ts';
import { decodeBlock } from '../../../schemas/decode/index.ts';
import { STRK_TOKEN, ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import {
  ART,
  COIN,
  ITEMS,
  RIDDLE,
  SEQUENCER,
  accepted,
  batchEvent,
  makeBlock,
  reverted,
  transferEvent,
} from '../../support/chain-messages.ts';
import { reduceRows, sortingKey } from '../../support/replacing.ts';

const ANNA = toFelt(0xa11an);
const BERT = toFelt(0xbe47n);

const item = (message: ChainBlocksMessage, offset = 7): BlockItem => ({
  message,
  decoded: decodeBlock(message.block, message.contracts),
  partition: 3,
  offset,
});
const rowsOf = (projection: ClickHouseProjection, message: ChainBlocksMessage): Row[] =>
  Object.values(projection.project(item(message))).flat();

/**
 * Height 5000: a coin transfer with its fee; an NFT minted; a batch of two items to oneself; a contract of which
 * nothing is known; and an event of no token at position 5.
 */
const block = makeBlock({
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
const message = accepted(block, 100, 'backfill-1');
const hashes = block.transactions.map(({ hash }) => hash);

// 0xffffffff - 5000, and 0xffffffff minus small positions.
const BLOCK_DESC = 4_294_962_295;
const last = (position: number): number => 4_294_967_295 - position;

describe('what a block becomes', () => {
  test('transfers: one row each, newest first in the key', () => {
    const rows = rowsOf(transfers, message);
    expect(rows.map((row) => [row['token'], row['position_desc'], row['item_desc'], row['kind']])).toEqual([
      [COIN, last(0), last(0), 'erc20'],
      [STRK_TOKEN, last(1), last(0), 'erc20'],
      [ART, last(2), last(0), 'erc721'],
      [ITEMS, last(3), last(0), 'erc1155'],
      [ITEMS, last(3), last(1), 'erc1155'],
      [RIDDLE, last(4), last(0), 'unknown'],
    ]);
    expect(rows[1]).toEqual({
      token: STRK_TOKEN,
      block_desc: BLOCK_DESC,
      position_desc: last(1),
      item_desc: last(0),
      from_address: ANNA,
      to_address: SEQUENCER,
      kind: 'erc20',
      amount: 9n,
      token_id: 0n,
      tx_hash: hashes[0],
      event_in_tx: 1,
      timestamp: 1_700_010_000,
      fee: 9n,
      fee_unit: STRK_TOKEN,
      is_fee: 1,
      execution_status: 'SUCCEEDED',
      block_hash: block.hash,
      seq: 100,
      is_deleted: 0,
    });
    expect(rows.map((row) => row['amount'])).toEqual([12n, 9n, 1n, 10n, 20n, 4n]);
    expect(rows.map((row) => row['token_id'])).toEqual([0n, 0n, 77n, 1n, 2n, 0n]);
  });

  test('nft_transfers: only what has a token id', () => {
    expect(
      rowsOf(nftTransfers, message).map((row) => [row['token'], row['token_id'], row['amount']]),
    ).toEqual([
      [ART, 77n, 1n],
      [ITEMS, 1n, 10n],
      [ITEMS, 2n, 20n],
    ]);
  });

  test('account_feed: once for each account, and a transfer to oneself once', () => {
    expect(
      rowsOf(accountFeed, message).map((row) => [
        row['account'],
        row['leg'],
        row['position_desc'],
        row['item_desc'],
      ]),
    ).toEqual([
      [ANNA, 1, last(0), last(0)],
      [BERT, 2, last(0), last(0)],
      [ANNA, 1, last(1), last(0)],
      [SEQUENCER, 2, last(1), last(0)],
      [ZERO_FELT, 1, last(2), last(0)],
      [BERT, 2, last(2), last(0)],
      [ANNA, 3, last(3), last(0)],
      [ANNA, 3, last(3), last(1)],
      [BERT, 1, last(4), last(0)],
      [ANNA, 2, last(4), last(0)],
    ]);
  });

  test('account_ledger: two legs each that sum to zero, none for what is unknown', () => {
    const rows = accountLedger.project(item(message))['account_ledger'] ?? [];
    expect(rows.map((row) => [row['account'], row['token'], row['leg'], row['delta']])).toEqual([
      [ANNA, COIN, 1, -12n],
      [BERT, COIN, 2, 12n],
      [ANNA, STRK_TOKEN, 1, -9n],
      [SEQUENCER, STRK_TOKEN, 2, 9n],
      [ZERO_FELT, ART, 1, -1n],
      [BERT, ART, 2, 1n],
      [ANNA, ITEMS, 1, -10n],
      [ANNA, ITEMS, 2, 10n],
      [ANNA, ITEMS, 1, -20n],
      [ANNA, ITEMS, 2, 20n],
    ]);
  });

  test('account_ledger_by_block: one row a pair, with what its legs make together', () => {
    const rows = accountLedger.project(item(message))['account_ledger_by_block'] ?? [];
    expect(rows.map((row) => [row['account'], row['token'], row['delta'], row['legs']])).toEqual([
      [ANNA, COIN, -12n, 1],
      [BERT, COIN, 12n, 1],
      [ANNA, STRK_TOKEN, -9n, 1],
      [SEQUENCER, STRK_TOKEN, 9n, 1],
      [ZERO_FELT, ART, -1n, 1],
      [BERT, ART, 1n, 1],
      [ANNA, ITEMS, 0n, 4],
    ]);
    expect(new Set(rows.map((row) => [row['range'], row['block']].join()))).toEqual(new Set(['4,5000']));
  });

  test('tx_index: the full keys of the transaction’s transfers', () => {
    expect(rowsOf(txIndex, message)).toEqual([
      {
        tx_hash: hashes[0],
        block_desc: BLOCK_DESC,
        timestamp: 1_700_010_000,
        tokens: [COIN, STRK_TOKEN],
        positions: [0, 1],
        items: [0, 0],
        seq: 100,
        is_deleted: 0,
      },
      expect.objectContaining({ tx_hash: hashes[1], tokens: [ART], positions: [2], items: [0] }),
      expect.objectContaining({
        tx_hash: hashes[2],
        tokens: [ITEMS, ITEMS, RIDDLE],
        positions: [3, 3, 4],
        items: [0, 1, 0],
      }),
    ]);
  });

  test('indexed_blocks: what the block holds, and where its body lies', () => {
    expect(rowsOf(indexedBlocks, message)).toEqual([
      {
        block_desc: BLOCK_DESC,
        block_hash: block.hash,
        parent_hash: block.parent_hash,
        timestamp: 1_700_010_000,
        chunk: 'backfill-1',
        transactions: 3,
        events: 6,
        transfers: 6,
        malformed: 0,
        tokens: [COIN, STRK_TOKEN, ART, ITEMS, RIDDLE],
        log_partition: 3,
        log_offset: 7,
        seq: 100,
        is_deleted: 0,
      },
    ]);
  });

  test('transfer_counts: per token, and per account as often as its feed shows it', () => {
    const rows = rowsOf(transferCounts, message);
    expect(new Set(rows.map((row) => [row['range'], row['block']].join()))).toEqual(new Set(['4,5000']));
    const counts = (kind: number): unknown =>
      Object.fromEntries(
        rows.filter((row) => row['subject_kind'] === kind).map((row) => [row['subject'], row['transfers']]),
      );
    expect(counts(1)).toEqual({ [COIN]: 1, [STRK_TOKEN]: 1, [ART]: 1, [ITEMS]: 2, [RIDDLE]: 1 });
    expect(counts(2)).toEqual({ [ANNA]: 5, [BERT]: 3, [SEQUENCER]: 1, [ZERO_FELT]: 1 });
  });
});

describe.each(chainProjections.map((projection) => [projection.name, projection] as const))(
  '%s',
  (_, projection) => {
    const tables = Object.entries(projection.tables);

    test('fills the columns of its table.sql, all of them', () => {
      for (const [table, { columns }] of tables) {
        const create =
          projection.ddl.split('CREATE TABLE').find((text) => text.includes(`{{${table}}}`)) ?? '';
        const declared = [...create.matchAll(/^ {2}([a-z_]+) ([A-Z][A-Za-z0-9()]+)/gm)].map(
          ([, name, type]) => ({ name, type }),
        );
        expect([...columns].toSorted(byName)).toEqual(declared.toSorted(byName));
      }
    });

    test('takes back by a revert every row that the block made, and rows fit their columns', () => {
      const made = projection.project(item(message));
      const taken = projection.project(item(reverted(block, 101), 8));
      for (const [table, { columns }] of tables) {
        const key = sortingKey(projection.ddl, table);
        const rows = [...(made[table] ?? []), ...(taken[table] ?? [])];
        expect(made[table]?.length).toBeGreaterThan(0);
        expect(reduceRows(rows, key)).toEqual([]);
        expect(encodeRows(columns, rows).length).toBeGreaterThan(0);
      }
    });

    test('comes to the same state whatever is repeated, in whatever order it arrives', () => {
      const other = makeBlock({
        height: 5000,
        fork: 1,
        transactions: [
          { events: [transferEvent(COIN, BERT, ANNA, 3n), transferEvent(ART, BERT, ANNA, 77n)] },
        ],
      });
      const history = [
        item(accepted(block, 100), 1),
        item(reverted(block, 101), 2),
        item(accepted(other, 102), 3),
        item(reverted(other, 103), 4),
        item(accepted(block, 104), 5),
      ];
      const steps = history.map((_, index) => index);
      for (const [table] of tables) {
        const key = sortingKey(projection.ddl, table);
        const made = history.map((one) => projection.project(one)[table] ?? []);
        const expected = reduceRows(made.at(-1) ?? [], key);
        expect(expected.length).toBeGreaterThan(0);
        fc.assert(
          fc.property(
            fc.array(fc.constantFrom(...steps)),
            fc.shuffledSubarray(steps, { minLength: steps.length }),
            (repeats, all) => {
              const rows = [...repeats, ...all].flatMap((step) => made[step] ?? []);
              expect(reduceRows(rows, key)).toEqual(expected);
            },
          ),
        );
      }
    });
  },
);

function byName(a: { name?: string | undefined }, b: { name?: string | undefined }): number {
  return (a.name ?? '') < (b.name ?? '') ? -1 : 1;
}
