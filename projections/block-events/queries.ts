import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { HashedBlock } from '../../schemas/commitment/block-hash.ts';
import type { HashedTransaction } from '../../schemas/commitment/events.ts';
import type { Felt } from '../../schemas/felt.ts';
import { blockBody } from '../../schemas/messages/chain-blocks.ts';
import { felt } from '../../schemas/messages/common.ts';
import type { RawEvent } from '../../schemas/messages/chain-blocks.ts';
import { descending } from '../descending.ts';
import type { ServedBuilds } from '../served.ts';

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

const hexes = (column: string): string => `arrayMap(felt -> concat('0x', lower(hex(felt))), ${column})`;

/** The block at a height with its raw events; null without one. */
export async function eventsOfBlock(
  clickhouse: Pick<ClickHouse, 'rows'>,
  tables: Pick<ServedBuilds, 'table'>,
  height: number,
): Promise<BlockEvents | null> {
  const sql = `SELECT concat('0x', lower(hex(block_hash))) AS hash, header, ${hexes('block_events.tx_hashes')} AS tx_hashes,
      tx_events, event_keys, event_data, ${hexes('felts')} AS all_felts, toString(seq) AS version
    FROM ${tables.table('block_events')} AS block_events FINAL WHERE block_desc = {desc:UInt32}`;
  const [row] = await clickhouse.rows(
    { name: 'block-events.of', sql, row: eventsRow },
    { desc: descending(height) },
    { settings: { max_threads: 1, select_sequential_consistency: 1 } },
  );
  if (row === undefined) return null;
  const { hash, version, header } = row;
  if (header === '') return { hash, version, kept: null };
  const block = hashedBlock.parse(JSON.parse(header));
  return { hash, version, kept: { block, transactions: transactionsOf(row) } };
}

function transactionsOf({ tx_hashes, tx_events, event_keys, event_data, all_felts }: EventsRow) {
  let [event, at] = [0, 0];
  const take = (count: number): Felt[] => all_felts.slice(at, (at += count));
  const nextEvent = (): RawEvent => {
    const [from] = take(1);
    if (from === undefined) throw new RangeError('an event without an address');
    const [keys, data] = [take(event_keys[event] ?? 0), take(event_data[event] ?? 0)];
    event += 1;
    return { from_address: from, keys, data };
  };
  return tx_hashes.map((hash, index) => ({
    hash,
    events: Array.from({ length: tx_events[index] ?? 0 }, nextEvent),
  }));
}
