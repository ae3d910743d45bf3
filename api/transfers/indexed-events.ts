import { blocksAt } from '../../projections/indexed-blocks/queries.ts';
import type { ServedTables } from '../../projections/served.ts';
import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { behind } from '../http/errors.ts';

/** A block may be replaced while it is read. */
const ATTEMPTS = 3;

/**
 * What `find` finds in a block, and the events that `read` reads of the same block; null: the events of the block are not
 * kept.
 *
 * @throws 503 while the block is being replaced, or has just been added
 */
export async function withEvents<F extends { readonly height: number; readonly hash: Felt }, E>(
  { clickhouse, tables }: { clickhouse: RowReader; tables: ServedTables },
  find: () => Promise<F>,
  read: (height: number) => Promise<(E & { readonly hash: Felt }) | null>,
): Promise<{ readonly found: F; readonly events: E } | null> {
  let isKept = true;
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const found = await find();
    // Read before the events, which are written before the block is marked as indexed.
    const indexed = (await blocksAt(clickhouse, tables, [found.height])).get(found.height);
    const events = await read(found.height);
    isKept = indexed?.hash !== found.hash || events !== null;
    if (indexed?.hash === found.hash && events?.hash === found.hash) return { found, events };
  }
  if (!isKept) return null;
  throw behind('The block is being replaced, or has just been added.');
}
