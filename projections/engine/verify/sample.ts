import { z } from 'zod';

import type { RowReader } from '../../../infra/clickhouse/client.ts';
import type { Clock } from '../../../infra/clock.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { countEvents } from '../../../schemas/messages/chain-blocks.ts';
import { topics } from '../../../schemas/topics.ts';
import type { ServedTables } from '../../served.ts';
import { parseMessage } from '../../streams.ts';
import { amongFelts } from '../../transfer-reads.ts';
import { ascendingSql, descending } from '../../descending.ts';
import { feltSql } from '../../sql-terms.ts';

/** Transfers of a block whose legs are read: each has two in the ledger. */
const LEGS_OF = 16;

const blockRow = z.object({
  height: z.number(),
  hash: z.string(),
  transfers: z.number(),
  tokens: z.array(z.string()),
  partition: z.number(),
  offset: z.coerce.number(),
  seq: z.coerce.number(),
});
export type SampledBlock = z.infer<typeof blockRow>;

const transferRow = z.object({
  of_token: z.string(),
  position_desc: z.number(),
  item_desc: z.number(),
  source: z.string(),
  target: z.string(),
  kind: z.string(),
  moved: z.string(),
  of_block: z.string(),
});
const legsRow = z.object({ legs: z.coerce.number(), sum: z.string(), moved: z.string() });
const heightRow = z.object({ height: z.number() });

/** One thread, so that a sample takes little from writers and readers. */
const settings = { max_threads: 1 } as const;

interface Deps {
  readonly clickhouse: RowReader;
  readonly served: ServedTables;
}

/** The indexed block at a height, or the next one below; null when there is none. Reads one granule. */
export async function blockAtOrBelow(
  { clickhouse, served }: Deps,
  height: number,
): Promise<SampledBlock | null> {
  const sql = `SELECT ${ascendingSql('block_desc')} AS height, ${feltSql('block_hash')} AS hash, transfers,
      arrayMap(token -> lower(hex(token)), tokens) AS tokens, log_partition AS partition, log_offset AS offset, seq
    FROM ${served.table('indexed_blocks')} FINAL WHERE block_desc >= {highest:UInt32} ORDER BY block_desc LIMIT 1`;
  const [row] = await clickhouse.rows(
    { name: 'sample.block', sql, row: blockRow },
    { highest: descending(height) },
    { settings },
  );
  return row ?? null;
}

/** The lowest indexed height; null when nothing is indexed. */
export async function lowestIndexed({ clickhouse, served }: Deps): Promise<number | null> {
  const sql = `SELECT min(first_block) AS height FROM ${served.table('indexed_block_ranges')} FINAL HAVING count() > 0`;
  const [row] = await clickhouse.rows({ name: 'sample.lowest', sql, row: heightRow }, {}, { settings });
  return row?.height ?? null;
}

/**
 * Compares the parts of one block that can be read by key: the number of its transfers with their rows, some of them with
 * their two legs, which sum to zero, and, given the log, the header's counts with the body.
 *
 * @returns the first difference, as a sentence; null when there is none
 */
export async function differenceInBlock(
  deps: Deps & { readonly clock: Pick<Clock, 'random'> },
  block: SampledBlock,
  kafka: Pick<Kafka, 'readRange'> | null,
  signal?: AbortSignal,
): Promise<string | null> {
  const { clickhouse, served } = deps;
  const rows =
    block.tokens.length === 0
      ? []
      : await clickhouse.rows(
          {
            name: 'sample.transfers',
            sql: `SELECT lower(hex(token)) AS of_token, position_desc, item_desc, lower(hex(from_address)) AS source,
                lower(hex(to_address)) AS target, kind, toString(amount) AS moved, ${feltSql('block_hash')} AS of_block
              FROM ${served.table('transfers')} FINAL PREWHERE token ${amongFelts('tokens')} AND block_desc = {desc:UInt32}`,
            row: transferRow,
          },
          { tokens: block.tokens, desc: descending(block.height) },
          { settings },
        );
  if (rows.length !== block.transfers)
    return `${block.transfers} transfers are counted, ${rows.length} rows are in transfers`;
  const foreign = rows.find(({ of_block }) => of_block !== block.hash);
  if (foreign !== undefined) return `a transfer is of block ${foreign.of_block}, indexed is ${block.hash}`;
  return (
    (await differenceInLegs(deps, block, rows)) ??
    (kafka === null ? null : await differenceInLog(kafka, block, signal))
  );
}

async function differenceInLegs(
  { clickhouse, served, clock }: Deps & { readonly clock: Pick<Clock, 'random'> },
  { height }: SampledBlock,
  rows: readonly z.infer<typeof transferRow>[],
): Promise<string | null> {
  const known = rows.filter(({ kind }) => kind !== 'unknown');
  const from = Math.floor(clock.random() * (Math.max(0, known.length - LEGS_OF) + 1));
  const chosen = known.slice(from, from + LEGS_OF);
  if (chosen.length === 0) return null;
  const legs = chosen.flatMap(
    ({ of_token: token, position_desc: position, item_desc: item, source, target }) => [
      { account: source, token, position, item, leg: 1 },
      { account: target, token, position, item, leg: 2 },
    ],
  );
  const sql = `SELECT count() AS legs, toString(sum(delta)) AS sum, toString(sumIf(delta, leg = 2)) AS moved
    FROM ${served.table('account_ledger')} FINAL
    PREWHERE (account, token, block_desc, position_desc, item_desc, leg) IN (
      SELECT toFixedString(unhex(a), 32), toFixedString(unhex(t), 32), {desc:UInt32}, p, i, l
      FROM (
        SELECT {accounts:Array(String)} AS accounts, {tokens:Array(String)} AS tokens, {positions:Array(UInt32)} AS positions,
          {items:Array(UInt32)} AS items, {legs:Array(UInt8)} AS legs
      ) ARRAY JOIN accounts AS a, tokens AS t, positions AS p, items AS i, legs AS l
    )`;
  const params = {
    desc: descending(height),
    accounts: legs.map(({ account }) => account),
    tokens: legs.map(({ token }) => token),
    positions: legs.map(({ position }) => position),
    items: legs.map(({ item }) => item),
    legs: legs.map(({ leg }) => leg),
  };
  const [found] = await clickhouse.rows({ name: 'sample.legs', sql, row: legsRow }, params, { settings });
  // A delta is an Int256: amounts of 2^255 and more wrap around, and so does their sum.
  const moved = BigInt.asIntN(
    256,
    chosen.reduce((sum, row) => sum + BigInt(row.moved), 0n),
  );
  const count = found?.legs ?? 0;
  if (count === 2 * chosen.length && found?.sum === '0' && found.moved === String(moved)) return null;
  return `${chosen.length} transfers of ${moved} in all have ${count} legs, which sum to ${found?.sum ?? 0} and move ${found?.moved ?? 0}`;
}

/** The message that the index names must hold this block, with as many transactions and events as its header counts. */
async function differenceInLog(
  kafka: Pick<Kafka, 'readRange'>,
  { height, hash, partition, offset }: SampledBlock,
  signal?: AbortSignal,
): Promise<string | null> {
  const topic = topics.chainBlocks;
  const place = `${topic.name}:${partition}:${offset}`;
  for await (const message of kafka.readRange(topic, partition, offset, offset + 1, signal)) {
    const parsed = parseMessage(topic, message);
    if ('reason' in parsed) return `${place} cannot be read: ${parsed.reason}`;
    const { block, type } = parsed.message;
    if (type !== 'block.accepted' || block.height !== height || block.hash !== hash)
      return `${place} does not hold the block ${hash}`;
    const events = countEvents(block);
    const isWhole =
      (block.transaction_count ?? block.transactions.length) === block.transactions.length &&
      (block.event_count ?? events) === events;
    return isWhole
      ? null
      : `the header counts ${block.transaction_count} transactions and ${block.event_count} events, the body holds ${block.transactions.length} and ${events}`;
  }
  return `${place} is not in the log`;
}
