import { z } from 'zod';

import { inTransaction, sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, Sql } from '../../../infra/postgres/client.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { felt } from '../../../schemas/messages/common.ts';
import { storable } from '../../../schemas/text.ts';
import { refusals } from './guard.ts';
import type { KnownPrice, Verdict } from './guard.ts';

const claimRow = z.object({
  token: felt,
  common: z.boolean(),
  /** Marks the claim. */
  claimed_until: z.number(),
  price: z.string().nullable(),
  observed_at: z.number().nullable(),
  held_price: z.string().nullable(),
  held_observed_at: z.number().nullable(),
  held_since: z.number().nullable(),
});

/** A token that is to be read now, by this process alone. */
export interface Claim extends KnownPrice {
  readonly token: Felt;
  readonly common: boolean;
  readonly mark: number;
}

/** How a reading went; without a verdict the feed was not heard, and nothing is known that was not before. */
export interface Settled {
  readonly claim: Claim;
  readonly verdict: Verdict | null;
  readonly dueAt: number | null;
}

export interface Position {
  readonly topic: string;
  readonly topicId: string;
  readonly partition: number;
  readonly nextOffset: number;
}

/** How long a claim keeps others away; after a crash, how long until its tokens are read again. */
export const CLAIM_MS = 60_000;

const OBSERVER = 'prices';

export type PriceStore = ReturnType<typeof createPriceStore>;

/** The schedule of readings and what is known of each token, in Postgres (tds.price_watch). */
export function createPriceStore(pool: Pool) {
  return {
    /** Makes these, and no others, the tokens that are read all the time. */
    async watchCommon(tokens: readonly Felt[], now: number): Promise<void> {
      await pool.query(
        `INSERT INTO tds.price_watch AS known (token, common, due_at)
         SELECT token, true, $2::bigint FROM unnest($1::text[]) AS new (token) ORDER BY token
         ON CONFLICT (token) DO UPDATE SET common = true, due_at = least(known.due_at, excluded.due_at)
         WHERE NOT known.common`,
        [tokens, now],
      );
      await pool.query(
        'UPDATE tds.price_watch SET common = false, due_at = NULL WHERE common AND token <> ALL($1::text[])',
        [tokens],
      );
    },

    /**
     * Has tokens read, and moves the position in the log, in one transaction. `asked`: unless they were read within
     * `windowMs`, or are being read: many who ask are one reading. `fresh`: if they never were. Answers how many are due.
     */
    async want(
      wanted: { readonly asked: readonly Felt[]; readonly fresh: readonly Felt[] },
      position: Position,
      windowMs: number,
      now: number,
    ): Promise<number> {
      const insert = `INSERT INTO tds.price_watch AS known (token, common, due_at)
        SELECT token, false, $2::bigint FROM unnest($1::text[]) AS new (token) ORDER BY token`;
      return await inTransaction(pool, async (tx) => {
        const counts = [
          await tx.query(
            `${insert} ON CONFLICT (token) DO UPDATE SET due_at = excluded.due_at
             WHERE known.claimed_until <= excluded.due_at AND coalesce(known.read_at, 0) <= excluded.due_at - $3
               AND coalesce(known.due_at > excluded.due_at, true)`,
            [wanted.asked, now, windowMs],
          ),
          await tx.query(`${insert} ON CONFLICT (token) DO NOTHING`, [wanted.fresh, now]),
        ];
        await movePosition(tx, position);
        return counts.reduce((sum, { rowCount }) => sum + (rowCount ?? 0), 0);
      });
    },

    async position(topic: string, topicId: string, partition: number): Promise<number | null> {
      const [row] = await sqlRows(
        pool,
        z.object({ next_offset: z.number() }),
        `SELECT next_offset FROM tds.observer_positions
         WHERE observer = $1 AND topic = $2 AND partition = $3 AND topic_id = $4`,
        [OBSERVER, topic, partition, topicId],
      );
      return row?.next_offset ?? null;
    },

    /** Due tokens, those that something asked for first, then the longest due. */
    async claim(limit: number, now: number): Promise<Claim[]> {
      const rows = await sqlRows(
        pool,
        claimRow,
        `WITH due AS MATERIALIZED (
           SELECT token FROM tds.price_watch WHERE due_at <= $1 AND claimed_until <= $1
           ORDER BY common, due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
         UPDATE tds.price_watch AS claimed SET claimed_until = $3 FROM due WHERE claimed.token = due.token
         RETURNING claimed.token, common, claimed_until, price, observed_at, held_price, held_observed_at, held_since`,
        [now, limit, now + CLAIM_MS],
      );
      return rows.map((row) => ({
        token: row.token,
        common: row.common,
        mark: row.claimed_until,
        last:
          row.price === null || row.observed_at === null
            ? null
            : { price: row.price, observedAt: row.observed_at },
        held:
          row.held_price === null || row.held_observed_at === null || row.held_since === null
            ? null
            : { price: row.held_price, observedAt: row.held_observed_at, since: row.held_since },
      }));
    },

    /** Ends claims; one that was lost meanwhile changes nothing. */
    async settle(settled: readonly Settled[], now: number): Promise<void> {
      await inTransaction(pool, async (tx) => {
        for (const one of settled) await settleOne(tx, one, now);
      });
    },

    /** Takes back the alarms, named by `prefix` and token, of tokens that are not common any more. */
    async clearUncommon(prefix: string): Promise<void> {
      await pool.query(
        `DELETE FROM tds.alarms WHERE starts_with(name, $1) AND NOT EXISTS (
           SELECT 1 FROM tds.price_watch WHERE common AND token = substr(name, length($1) + 1))`,
        [prefix],
      );
    },
  };
}

const stateRow = z.object({
  /** Why the last reading was not published; null: it was, or said nothing new. */
  refusal: z.enum(refusals).nullable(),
  tokens: z.number(),
  /** Unix milliseconds. */
  published_at: z.number().nullable(),
});
export type PriceState = z.infer<typeof stateRow>;

/** How many tokens there are by what became of their last reading, and when the newest price of those was published. */
export async function priceStates(db: Sql): Promise<PriceState[]> {
  return await sqlRows(
    db,
    stateRow,
    `SELECT refusal, count(*) AS tokens, max(published_at) AS published_at
     FROM tds.price_watch WHERE read_at IS NOT NULL GROUP BY refusal ORDER BY refusal NULLS FIRST`,
  );
}

async function settleOne(tx: Sql, { claim, verdict, dueAt }: Settled, now: number): Promise<void> {
  const end = async (set: string, values: readonly unknown[] = []): Promise<void> => {
    await tx.query(
      `UPDATE tds.price_watch SET claimed_until = 0, due_at = $3${set} WHERE token = $1 AND claimed_until = $2`,
      [claim.token, claim.mark, dueAt, ...values],
    );
  };
  const unheld = 'held_price = NULL, held_observed_at = NULL, held_since = NULL';
  if (verdict === null) return await end('');
  switch (verdict.kind) {
    case 'publish':
      return await end(
        `, read_at = $4, price = $5, observed_at = $6, published_at = $4, ${unheld}, refusal = NULL, refusal_detail = NULL`,
        [now, verdict.price, verdict.observedAt],
      );
    case 'repeated':
      return await end(`, read_at = $4, ${unheld}, refusal = NULL, refusal_detail = NULL`, [now]);
    case 'held': {
      const { price, observedAt, since } = verdict.held;
      return await end(
        ", read_at = $4, held_price = $5, held_observed_at = $6, held_since = $7, refusal = 'jump', refusal_detail = $8",
        [now, price, observedAt, since, verdict.detail],
      );
    }
    case 'refused':
      return await end(', read_at = $4, refusal = $5, refusal_detail = $6', [
        now,
        verdict.reason,
        storable(verdict.detail),
      ]);
  }
}

async function movePosition(tx: Sql, position: Position): Promise<void> {
  await tx.query(
    `INSERT INTO tds.observer_positions (observer, topic, partition, topic_id, next_offset)
     VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (observer, topic, partition) DO UPDATE
       SET topic_id = excluded.topic_id, next_offset = excluded.next_offset, updated_at = now()`,
    [OBSERVER, position.topic, position.partition, position.topicId, position.nextOffset],
  );
}
