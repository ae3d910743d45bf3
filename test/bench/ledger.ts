import { z } from 'zod';

import { pause } from '../../infra/lifecycle.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt } from '../../schemas/messages/common.ts';
import { topics } from '../../schemas/topics.ts';
import type { Stores } from './stores.ts';

/** Ledgers that are filled by ClickHouse itself: sums, the blocks they are of, and balances read at the last of them. */

/** At the beginning of a range, above everything else. */
export const FIRST_HEIGHT = 2_097_152;
export const FIRST_TIME = 1_700_000_000;
/** A block each 30 s, and ten legs of the hot account in each: 20 M legs are 694 days, 28,800 a day. */
export const BLOCK_SECONDS = 30;
export const LEGS_PER_BLOCK = 10;

/** Expressions of ClickHouse: a felt's bytes, and those of one made from a text. */
export const bytes = (hex: Felt): string => `toFixedString(unhex('${hex.slice(2)}'), 32)`;
export const made = (text: string): string =>
  `toFixedString(concat(unhex('00'), substring(SHA256(${text}), 2)), 32)`;

/** Makes what a `SELECT` gives rows of a table that is served. */
export const inserter =
  ({ clickhouse, served }: Stores) =>
  async (table: string, select: string): Promise<void> =>
    await clickhouse.command(`INSERT INTO ${served.table(table)} ${select}`);

/** So many blocks as indexed, and what was moved in them by range: nothing else of them. */
export async function fillBlocks(stores: Stores, blocks: number): Promise<void> {
  const insert = inserter(stores);
  const height = `toUInt32(${FIRST_HEIGHT} + number)`;
  await insert(
    'account_ledger_ranges',
    `SELECT account, token, range, sum(delta), sum(legs), 1, 0 FROM ${stores.served.table('account_ledger_by_block')} FINAL
     WHERE range >= ${FIRST_HEIGHT / 1024} GROUP BY account, token, range`,
  );
  await insert(
    'indexed_blocks',
    `SELECT 4294967295 - ${height}, ${made(`concat('block ', toString(number))`)}, ${made(`concat('block ', toString(number - 1))`)},
       ${FIRST_TIME} + ${BLOCK_SECONDS} * number, 'bench', 1, 1, 1, 0, [], 0, number, 1, 0 FROM numbers(${blocks})`,
  );
  await insert(
    'indexed_block_ranges',
    `SELECT 'bench', intDiv(h, 1024) AS bucket, count(), count(), min(h), max(h), max(h), 1, 0
     FROM (SELECT ${height} AS h FROM numbers(${blocks})) GROUP BY bucket`,
  );
}

export interface Read {
  readonly account: Felt;
  readonly token: Felt;
  readonly balance: bigint;
}

/** Balances as they were read at a block, and what their tokens are, through the log. */
export async function anchorAll(
  { clickhouse, kafka, pool, served }: Stores,
  block: number,
  reads: readonly Read[],
): Promise<void> {
  const [row] = await clickhouse.rows({
    name: 'bench',
    sql: `SELECT concat('0x', lower(hex(block_hash))) AS hash FROM ${served.table('indexed_blocks')} WHERE block_desc = ${4_294_967_295 - block}`,
    row: z.object({ hash: felt }),
  });
  if (row === undefined) throw new Error('the newest block is not there');
  const now = Date.now();
  const publisher = kafka.publisher();
  await publisher.publish(
    topics.balances,
    reads.map(({ account, token, balance }) => ({
      key: `${account}:${token}`,
      value: {
        type: 'balance.observed' as const,
        v: 1 as const,
        account,
        token,
        balance: balance.toString(),
        block,
        block_hash: row.hash,
        observed_at: now,
        requested_at: now,
        l1_height: null,
      },
    })),
  );
  const tokens = [...new Set(reads.map(({ token }) => token))];
  await publisher.publish(
    topics.tokens,
    tokens.map((token) => ({
      key: token,
      value: {
        type: 'token.described' as const,
        v: 1 as const,
        token,
        standard: 'erc20' as const,
        class_hash: null,
        name: 'Bench',
        symbol: 'B',
        decimals: 18,
        block,
        observed_at: now,
      },
    })),
  );
  await publisher.close();
  const until = async (table: string, expected: number): Promise<void> => {
    const sql = `SELECT count(*) AS n FROM ${table} WHERE token = ANY($1)`;
    while (Number((await pool.query(sql, [tokens])).rows[0]?.n) < expected) await pause(100);
  };
  await until(`${served.schema('balances')}.anchors`, reads.length);
  await until(`${served.schema('tokens')}.tokens`, tokens.length);
}
