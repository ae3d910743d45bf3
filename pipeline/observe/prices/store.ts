import { z } from 'zod';

import { inTransaction, sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, Sql } from '../../../infra/postgres/client.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { felt } from '../../../schemas/messages/common.ts';
import { storable } from '../../../schemas/text.ts';
import { movePosition } from '../positions.ts';
import type { Position } from '../positions.ts';
import { refusals } from './guard.ts';
import type { KnownPrice, Verdict } from './guard.ts';
import type { PriceNews } from './news.ts';

const claimRow = z.object({
  token: felt,
  common: z.boolean(),
  /** Marks the claim. */
  claimed_until: z.number(),
  asked_at: z.number().nullable(),
  price: z.string().nullable(),
  observed_at: z.number().nullable(),
  held_price: z.string().nullable(),
  held_observed_at: z.number().nullable(),
  held_since: z.number().nullable(),
});

const wantedRow = z.object({
  token: felt,
  asked_at: z.number(),
  read_at: z.number().nullable(),
  is_answered: z.boolean(),
});

/** A token that is to be read now, by this process alone. */
export interface Claim extends KnownPrice {
  readonly token: Felt;
  readonly common: boolean;
  readonly mark: number;
  /** Of the newest request that waited when it was claimed. */
  readonly askedAt: number | null;
}

/** Requests of a token that are answered by what is known. */
export interface Answered {
  readonly token: Felt;
  readonly requestedAt: number;
  readonly readAt: number;
}

/** How a reading went; without a verdict the feed was not heard, and nothing is known that was not before. */
export interface Settled {
  readonly claim: Claim;
  readonly verdict: Verdict | null;
  readonly dueAt: number | null;
}

/** How long a claim keeps others away; after a crash, how long until its tokens are read again. */
export const CLAIM_MS = 60_000;

const FORGET_MS = 86_400_000;

/** Whose position in the log this is. */
export const OBSERVER = 'prices';

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
      // Anyone may ask for any address: those that have no price are not kept.
      await pool.query(
        `DELETE FROM tds.price_watch
         WHERE NOT common AND price IS NULL AND due_at IS NULL AND claimed_until <= $1 AND read_at < $1 - $2`,
        [now, FORGET_MS],
      );
    },

    /**
     * Has tokens read, and moves the position in the log, in one transaction. `asked`: unless they were read within
     * `windowMs`, or are being read: many who ask are one reading. `fresh`: if they never were.
     *
     * @returns the requests that are answered by the last reading already
     */
    async want(
      { asked, fresh }: PriceNews,
      position: Position,
      windowMs: number,
      now: number,
    ): Promise<readonly Answered[]> {
      return await inTransaction(pool, async (tx) => {
        const rows = await sqlRows(
          tx,
          wantedRow,
          `INSERT INTO tds.price_watch AS known (token, common, due_at, asked_at)
           SELECT token, false, $3::bigint, asked_at FROM unnest($1::text[], $2::bigint[]) AS new (token, asked_at)
           ORDER BY token
           ON CONFLICT (token) DO UPDATE SET asked_at = greatest(known.asked_at, excluded.asked_at),
             due_at = CASE WHEN known.claimed_until > $3 OR known.read_at > $3 - $4 THEN known.due_at
                      ELSE least(known.due_at, $3) END
           RETURNING token, asked_at, read_at, claimed_until <= $3 AND coalesce(due_at > $3, true) AS is_answered`,
          [[...asked.keys()], [...asked.values()], now, windowMs],
        );
        const answered = rows.filter((row) => row.is_answered);
        await tx.query('UPDATE tds.price_watch SET asked_at = NULL WHERE token = ANY($1::text[])', [
          answered.map(({ token }) => token),
        ]);
        await tx.query(
          `INSERT INTO tds.price_watch (token, common, due_at)
           SELECT token, false, $2::bigint FROM unnest($1::text[]) AS new (token) ORDER BY token
           ON CONFLICT (token) DO NOTHING`,
          [fresh, now],
        );
        await movePosition(tx, OBSERVER, position);
        return answered.map(({ token, asked_at, read_at }) => ({
          token,
          requestedAt: asked_at,
          readAt: read_at ?? now,
        }));
      });
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
         RETURNING claimed.token, common, claimed_until, asked_at, price, observed_at, held_price, held_observed_at, held_since`,
        [now, limit, now + CLAIM_MS],
      );
      return rows.map((row) => ({
        token: row.token,
        common: row.common,
        mark: row.claimed_until,
        askedAt: row.asked_at,
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

    /**
     * Ends claims; one that was lost meanwhile changes nothing.
     *
     * @returns requests that came while their token was being read, and are answered by that
     */
    async settle(settled: readonly Settled[], now: number): Promise<readonly Answered[]> {
      const sorted = settled.toSorted((a, b) => (a.claim.token < b.claim.token ? -1 : 1));
      return await inTransaction(pool, async (tx) => {
        const answered: Answered[] = [];
        for (const { claim, verdict, dueAt } of sorted) {
          const { token } = claim;
          const [row] = await sqlRows(
            tx,
            z.object({ asked_at: z.number().nullable() }),
            'SELECT asked_at FROM tds.price_watch WHERE token = $1 AND claimed_until = $2 FOR UPDATE',
            [token, claim.mark],
          );
          if (row === undefined) continue;
          await settleOne(tx, { claim, verdict, dueAt }, now);
          if (verdict !== null && row.asked_at !== null && row.asked_at > (claim.askedAt ?? 0))
            answered.push({ token, requestedAt: row.asked_at, readAt: now });
        }
        return answered;
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
        `, read_at = $4, asked_at = NULL, price = $5, observed_at = $6, published_at = $4, ${unheld}, refusal = NULL, refusal_detail = NULL`,
        [now, verdict.price, verdict.observedAt],
      );
    case 'repeated':
      return await end(`, read_at = $4, asked_at = NULL, ${unheld}, refusal = NULL, refusal_detail = NULL`, [
        now,
      ]);
    case 'held': {
      const { price, observedAt, since } = verdict.held;
      return await end(
        ", read_at = $4, asked_at = NULL, held_price = $5, held_observed_at = $6, held_since = $7, refusal = 'jump', refusal_detail = $8",
        [now, price, observedAt, since, verdict.detail],
      );
    }
    case 'refused':
      return await end(', read_at = $4, asked_at = NULL, refusal = $5, refusal_detail = $6', [
        now,
        verdict.reason,
        storable(verdict.detail),
      ]);
  }
}
