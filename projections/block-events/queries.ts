import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { HashedBlock } from '../../schemas/commitment/block-hash.ts';
import type { HashedTransaction } from '../../schemas/commitment/events.ts';
import type { Felt } from '../../schemas/felt.ts';
import { blockBody } from '../../schemas/messages/chain-blocks.ts';
import { felt } from '../../schemas/messages/common.ts';
import type { RawEvent } from '../../schemas/messages/chain-blocks.ts';
import { descending } from '../descending.ts';
import type { ServedTables } from '../served.ts';
import { feltHex, feltParam } from '../transfer-reads.ts';
import { feltSql } from '../sql-terms.ts';

const hashedBlock = blockBody.omit({ hash: true, event_check: true, transactions: true });
const felts = z.array(felt);
const counts = z.array(z.int());
const eventsRow = z.object({
  hash: felt,
  header: z.string(),
  tx_hashes: felts,
  tx_events: counts,
  event_keys: counts,
  event_data: counts,
  all_felts: felts,
  version: z.string(),
});
type EventsRow = z.infer<typeof eventsRow>;

/** A block with its raw events. */
export interface BlockEvents {
  readonly hash: Felt;
  /** Changes with the rows of the block. */
  readonly version: string;
  /** null: the block has no commitment that can be recomputed. */
  readonly kept: {
    readonly block: HashedBlock;
    /** Those with events. */
    readonly transactions: readonly HashedTransaction[];
  } | null;
}

const settings = { max_threads: 1, select_sequential_consistency: 1 } as const;
const hexes = (column: string): string => `arrayMap(felt -> ${feltSql('felt')}, ${column})`;

/** The block at a height with its raw events; null without one. */
export async function eventsOfBlock(
  clickhouse: RowReader,
  tables: ServedTables,
  height: number,
): Promise<BlockEvents | null> {
  const sql = `SELECT ${feltSql('block_hash')} AS hash, header, ${hexes('block_events.tx_hashes')} AS tx_hashes,
      tx_events, event_keys, event_data, ${hexes('felts')} AS all_felts, toString(seq) AS version
    FROM ${tables.table('block_events')} AS block_events FINAL WHERE block_desc = {desc:UInt32}`;
  const [row] = await clickhouse.rows(
    { name: 'block-events.of', sql, row: eventsRow },
    { desc: descending(height) },
    { settings },
  );
  if (row === undefined) return null;
  const { hash, version, header } = row;
  if (header === '') return { hash, version, kept: null };
  const block = hashedBlock.parse(JSON.parse(header));
  return { hash, version, kept: { block, transactions: transactionsOf(row) } };
}

/** A page of the events of a block, or of one of its transactions. */
export interface EventPage {
  readonly hash: Felt;
  /** null: the block has no commitment that can be recomputed. */
  readonly page: {
    /** Of the block or transaction. */
    readonly total: number;
    readonly events: readonly (RawEvent & {
      /** Among all events of the block. */
      readonly index: number;
      readonly transaction_hash: Felt;
    })[];
  } | null;
}

const pageRow = z.object({
  hash: felt,
  is_kept: z.int(),
  o_total: z.int(),
  o_first: z.int(),
  o_keys: counts,
  o_data: counts,
  /** Transactions with events of the page, and the index after the last event of each. */
  o_txs: felts,
  o_ends: counts,
  o_felts: felts,
});

/**
 * A page of the events at a height, cut out by ClickHouse; null without a block there.
 *
 * @param offset null: the last page
 */
export async function pageOfEvents(
  clickhouse: RowReader,
  tables: ServedTables,
  page: { height: number; txhash: Felt | undefined; offset: number | null; limit: number },
): Promise<EventPage | null> {
  const { height, txhash, offset, limit } = page;
  const [start, total] =
    txhash === undefined
      ? ['0', 'length(event_keys)']
      : ['if(tx = 0, 0, ends[tx] - tx_events[tx])', 'if(tx = 0, 0, tx_events[tx])'];
  const isOnPage = 'end, events) -> end > first AND end - events < first + size';
  const sql = `WITH arrayCumSum(tx_events) AS ends, indexOf(tx_hashes, ${feltParam('txhash')}) AS tx, ${total} AS total,
      least(if({is_last:UInt8}, intDiv(greatest(total, 1) - 1, {limit:UInt32}) * {limit:UInt32}, {offset:UInt32}), total) AS skipped,
      ${start} + skipped AS first, least({limit:UInt32}, total - skipped) AS size,
      arraySlice(event_keys, first + 1, size) AS page_keys, arraySlice(event_data, first + 1, size) AS page_data,
      first + arraySum(arraySlice(event_keys, 1, first)) + arraySum(arraySlice(event_data, 1, first)) AS felts_before
    SELECT ${feltSql('block_hash')} AS hash, header != '' AS is_kept, toUInt32(total) AS o_total,
      toUInt32(first) AS o_first, page_keys AS o_keys, page_data AS o_data,
      ${hexes(`arrayFilter((hash, ${isOnPage}, tx_hashes, ends, tx_events)`)} AS o_txs,
      arrayMap(end -> toUInt32(end), arrayFilter((${isOnPage}, ends, tx_events)) AS o_ends,
      ${hexes('arraySlice(felts, felts_before + 1, size + arraySum(page_keys) + arraySum(page_data))')} AS o_felts
    FROM ${tables.table('block_events')} FINAL WHERE block_desc = {desc:UInt32}`;
  const params = {
    desc: descending(height),
    txhash: txhash === undefined ? '' : feltHex(txhash),
    is_last: offset === null ? 1 : 0,
    offset: offset ?? 0,
    limit,
  };
  const [row] = await clickhouse.rows({ name: 'block-events.page', sql, row: pageRow }, params, { settings });
  if (row === undefined) return null;
  const { hash, is_kept, o_total, o_first, o_txs, o_ends } = row;
  if (is_kept === 0) return { hash, page: null };
  const next = eventsIn({ event_keys: row.o_keys, event_data: row.o_data, all_felts: row.o_felts });
  const events = row.o_keys.map((_, at) => {
    const index = o_first + at;
    const transaction = o_txs[o_ends.findIndex((end) => end > index)];
    if (transaction === undefined) throw new RangeError('an event without a transaction');
    return { index, transaction_hash: transaction, ...next() };
  });
  return { hash, page: { total: o_total, events } };
}

function transactionsOf(row: EventsRow) {
  const next = eventsIn(row);
  return row.tx_hashes.map((hash, index) => ({
    hash,
    events: Array.from({ length: row.tx_events[index] ?? 0 }, next),
  }));
}

/** Gives one event after the other. */
function eventsIn({
  event_keys,
  event_data,
  all_felts,
}: Pick<EventsRow, 'event_keys' | 'event_data' | 'all_felts'>): () => RawEvent {
  let [event, at] = [0, 0];
  const take = (count: number): Felt[] => all_felts.slice(at, (at += count));
  return () => {
    const [from] = take(1);
    if (from === undefined) throw new RangeError('an event without an address');
    const [keys, data] = [take(event_keys[event] ?? 0), take(event_data[event] ?? 0)];
    event += 1;
    return { from_address: from, keys, data };
  };
}
