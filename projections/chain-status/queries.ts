import { z } from 'zod';

import { prepared, sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { felt } from '../../schemas/messages/common.ts';
import { topics } from '../../schemas/topics.ts';
import type { ServedBuilds } from '../served.ts';

/** Read side of the chain's status. `schema` is the served build's: `served.schema('chain-status')`. */

const statusRow = z.object({
  chain_id: felt.nullable(),
  spec_version: z.string().nullable(),
  has_header_counts: z.boolean().nullable(),
  has_l1_tag: z.boolean().nullable(),
  head_height: z.number().nullable(),
  head_hash: felt.nullable(),
  /** Unix milliseconds. */
  head_seen_at: z.number().nullable(),
  l1_height: z.number().nullable(),
  l1_seen_at: z.number().nullable(),
});
export type ChainStatusRow = z.infer<typeof statusRow>;

/** Fields are null until a message reports them. */
export async function chainStatusRow(db: Sql, schema: string): Promise<ChainStatusRow> {
  const columns = Object.keys(statusRow.shape);
  const [row] = await sqlRows(db, statusRow, prepared(`SELECT ${columns.join(', ')} FROM ${schema}.status`));
  return row ?? statusRow.parse(Object.fromEntries(columns.map((column) => [column, null])));
}

const finalRow = z.object({ height: z.number() });

/**
 * The highest block that is final in the served tables: they have read the log at least to where it was found to be accepted
 * on L1, so that no block at or below it is a reverted one that they have not undone yet. null: none is known.
 * Rows that are read after this height are those of the accepted blocks; rows read before may not be.
 */
export async function finalHeight(db: Sql, schema: string): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    finalRow,
    prepared(
      `SELECT height FROM ${schema}.final_heights AS final
       WHERE NOT EXISTS (
         SELECT FROM tds.projection_checkpoints AS read
         WHERE state = 'serving' AND topic = $1 AND next_offset < final.log_ends[partition + 1]
       )
       ORDER BY height DESC LIMIT 1`,
      [topics.chainBlocks.name],
    ),
  );
  return row?.height ?? null;
}

/** `finalHeight`, read once for each state of the read models, which it follows from. */
export function createFinalHeights(db: Sql): (served: ServedBuilds) => Promise<number | null> {
  let newest: { readonly state: string | null; readonly height: Promise<number | null> } | null = null;
  return async (served) => {
    const { state } = served;
    if (newest === null || state === null || newest.state !== state) {
      newest = { state, height: finalHeight(db, served.schema('chain-status')) };
    }
    const asked = newest;
    try {
      return await asked.height;
    } catch (error) {
      if (newest === asked) newest = null;
      throw error;
    }
  };
}

const chunkRow = z.object({
  name: z.string(),
  /** First and last height, both inclusive; the last is null for the chunk at the head. */
  start: z.number(),
  end: z.number().nullable(),
  /** Unix milliseconds. */
  opened_at: z.number(),
  finished_at: z.number().nullable(),
});
export type ChunkRow = z.infer<typeof chunkRow>;

/** All chunks, lowest first. */
export async function chunkRows(db: Sql, schema: string): Promise<ChunkRow[]> {
  return await sqlRows(
    db,
    chunkRow,
    `SELECT name, first_height AS start, last_height AS "end", opened_at, finished_at
     FROM ${schema}.chunks ORDER BY first_height, name`,
  );
}
