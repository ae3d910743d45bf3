import { z } from 'zod';

import { countOf, inTransaction, sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, Sql } from '../../../infra/postgres/client.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { felt } from '../../../schemas/messages/common.ts';
import { storable } from '../../../schemas/text.ts';
import { refusals, stateAfter } from './guard.ts';
import type { GuardState, Verdict } from './guard.ts';

/** A due token, reserved for this process until `claimedUntil`. */
export interface TokenClaim extends GuardState {
  readonly token: Felt;
  readonly common: boolean;
  readonly claimedUntil: number;
  /** Time of the newest request that was pending at the claim; null: none was. */
  readonly requestedAt: number | null;
}

/** A request answered by the last reading, without a new one. */
export interface Answered {
  readonly token: Felt;
  readonly requestedAt: number;
  readonly readAt: number;
}

/** The outcome of a claim. Verdict null: nothing was read or published, and the state of the token stays. */
export interface Settlement {
  readonly claim: TokenClaim;
  readonly verdict: Verdict | null;
  /** When to read the token next; null: when something asks for it. */
  readonly dueAt: number | null;
}

/** After a crash, how long until the tokens of a lost process are read again. */
const CLAIM_MS = 60_000;

/** Unpriced tokens are deleted a day after their last reading. */
const UNPRICED_TTL_MS = 86_400_000;

export const OBSERVER = 'prices';

const claimRow = z
  .object({
    token: felt,
    common: z.boolean(),
    claimed_until: z.number(),
    asked_at: z.number().nullable(),
    price: z.string().nullable(),
    observed_at: z.number().nullable(),
    candidate_price: z.string().nullable(),
    candidate_observed_at: z.number().nullable(),
    candidate_confirmations: z.number(),
  })
  .transform((row): TokenClaim => ({
    token: row.token,
    common: row.common,
    claimedUntil: row.claimed_until,
    requestedAt: row.asked_at,
    last:
      row.price === null || row.observed_at === null
        ? null
        : { price: row.price, observedAt: row.observed_at },
    candidate:
      row.candidate_price === null || row.candidate_observed_at === null
        ? null
        : {
            price: row.candidate_price,
            observedAt: row.candidate_observed_at,
            confirmations: row.candidate_confirmations,
          },
  }));

const scheduledRow = z.object({
  token: felt,
  asked_at: z.number(),
  read_at: z.number().nullable(),
  is_answered: z.boolean(),
});

/* The schedule of readings and the guard's state of each token: tds.price_watch. */

/**
 * Replaces the set of tokens that are read periodically. A token that leaves it stays due while a request is pending.
 *
 * @param maxWaitMs longest time until a token is due; one that is due later was scheduled by a clock that was ahead, or by a
 *   longer interval
 */
export async function setCommonTokens(
  pool: Pool,
  tokens: readonly Felt[],
  now: number,
  maxWaitMs: number,
): Promise<void> {
  // A token that became common while another process was reading it can be left without a next reading.
  await pool.query(
    `INSERT INTO tds.price_watch AS stored (token, common, due_at)
     SELECT DISTINCT token, true, $2::bigint FROM unnest($1::text[]) AS new (token) ORDER BY token
     ON CONFLICT (token) DO UPDATE SET common = true, due_at = least(stored.due_at, excluded.due_at)
     WHERE NOT stored.common OR stored.due_at IS NULL OR stored.due_at > $2 + $3`,
    [tokens, now, maxWaitMs],
  );
  await pool.query(
    `UPDATE tds.price_watch SET common = false, due_at = CASE WHEN asked_at IS NULL THEN NULL ELSE due_at END
     WHERE common AND token <> ALL($1::text[])`,
    [tokens],
  );
  // Clients may request any address, so the table would grow without bound.
  await pool.query(
    `DELETE FROM tds.price_watch
     WHERE NOT common AND price IS NULL AND due_at IS NULL AND claimed_until <= $1 AND coalesce(read_at, 0) < $1 - $2`,
    [now, UNPRICED_TTL_MS],
  );
}

/**
 * Makes requested tokens due, unless they were read within `windowMs` or are being read, so that concurrent requests
 * share one reading.
 *
 * @param requested tokens, with the time of the newest request of each
 * @returns the requests that the last reading already answers
 */
export async function scheduleRequested(
  pool: Pool,
  requested: ReadonlyMap<Felt, number>,
  windowMs: number,
  now: number,
): Promise<readonly Answered[]> {
  return await inTransaction(pool, async (tx) => {
    const rows = await sqlRows(
      tx,
      scheduledRow,
      `INSERT INTO tds.price_watch AS stored (token, common, due_at, asked_at)
       SELECT token, false, $3::bigint, asked_at FROM unnest($1::text[], $2::bigint[]) AS new (token, asked_at)
       ORDER BY token
       ON CONFLICT (token) DO UPDATE SET asked_at = greatest(stored.asked_at, excluded.asked_at),
         due_at = CASE WHEN stored.claimed_until > $3 OR abs(stored.read_at - $3) < $4 THEN stored.due_at
                  ELSE least(stored.due_at, $3) END
       RETURNING token, asked_at, read_at, claimed_until <= $3 AND coalesce(due_at > $3, true) AS is_answered`,
      [[...requested.keys()], [...requested.values()], now, windowMs],
    );
    const answered = rows.filter((row) => row.is_answered);
    await tx.query('UPDATE tds.price_watch SET asked_at = NULL WHERE token = ANY($1::text[])', [
      answered.map(({ token }) => token),
    ]);
    return answered.map(({ token, asked_at, read_at }) => ({
      token,
      requestedAt: asked_at,
      readAt: read_at ?? now,
    }));
  });
}

/** Makes tokens of a list due if they have no price: a client may have requested them before the feed knew them. */
export async function scheduleListed(pool: Pool, listed: readonly Felt[], now: number): Promise<void> {
  await pool.query(
    `INSERT INTO tds.price_watch AS stored (token, common, due_at)
     SELECT token, false, $2::bigint FROM unnest($1::text[]) AS new (token) ORDER BY token
     ON CONFLICT (token) DO UPDATE SET due_at = excluded.due_at
     WHERE stored.price IS NULL AND stored.due_at IS NULL`,
    [listed, now],
  );
}

/** Counts requested tokens that are due, common ones left out. */
export async function countRequested(pool: Pool, now: number): Promise<number> {
  return await countOf(
    pool,
    `SELECT count(*) AS n FROM tds.price_watch
     WHERE due_at <= $1 AND asked_at IS NOT NULL AND claimed_until <= $1 AND NOT common`,
    [now],
  );
}

/** Claims due tokens, common ones and others in turn, so that neither delay the other; of each the longest overdue. */
export async function claimTokens(pool: Pool, limit: number, now: number): Promise<TokenClaim[]> {
  const due = (which: string): string => `(SELECT token, common, due_at FROM tds.price_watch
    WHERE due_at <= $1 AND claimed_until <= $1 AND ${which} ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED)`;
  return await sqlRows(
    pool,
    claimRow,
    `WITH common AS MATERIALIZED ${due('common')}, others AS MATERIALIZED ${due('NOT common')},
     ranked AS (SELECT *, row_number() OVER (PARTITION BY common ORDER BY due_at) AS rank
       FROM (SELECT * FROM common UNION ALL SELECT * FROM others) AS both_groups),
     chosen AS MATERIALIZED (SELECT token FROM ranked ORDER BY rank, common LIMIT $2)
     UPDATE tds.price_watch AS claimed SET claimed_until = $3 FROM chosen WHERE claimed.token = chosen.token
     RETURNING claimed.token, common, claimed_until, asked_at, price, observed_at,
       candidate_price, candidate_observed_at, candidate_confirmations`,
    [now, limit, now + CLAIM_MS],
  );
}

/**
 * Ends claims; a claim that has expired and was taken by another process changes nothing.
 *
 * @returns requests that arrived during the reading, which it answers
 */
export async function settleClaims(
  pool: Pool,
  settlements: readonly Settlement[],
  now: number,
): Promise<readonly Answered[]> {
  const rows = settlements.map((settlement) => ({
    ...settledColumns(settlement),
    newest_request: settlement.claim.requestedAt ?? 0,
  }));
  // Locked in order of the token: two processes that settle the same tokens wait instead of deadlocking.
  const answered = await sqlRows(
    pool,
    z.object({ token: felt, requested_at: z.number() }),
    `WITH settled AS (SELECT * FROM jsonb_to_recordset($1) AS row (
         token text, claimed_until bigint, due_at bigint, is_read boolean, newest_request bigint, price text,
         observed_at bigint, is_published boolean, candidate_price text, candidate_observed_at bigint,
         candidate_confirmations integer, refusal text, refusal_detail text)),
     locked AS MATERIALIZED (
       SELECT watch.token, watch.asked_at FROM tds.price_watch AS watch
       JOIN settled ON settled.token = watch.token AND settled.claimed_until = watch.claimed_until
       ORDER BY watch.token FOR UPDATE OF watch),
     updated AS (
       UPDATE tds.price_watch AS watch SET claimed_until = 0, due_at = settled.due_at,
         read_at = CASE WHEN is_read THEN $2 ELSE watch.read_at END,
         asked_at = CASE WHEN is_read THEN NULL ELSE watch.asked_at END,
         price = settled.price, observed_at = settled.observed_at,
         published_at = CASE WHEN is_published THEN $2 ELSE watch.published_at END,
         candidate_price = settled.candidate_price,
         candidate_observed_at = settled.candidate_observed_at,
         candidate_confirmations = settled.candidate_confirmations,
         refusal = CASE WHEN is_read THEN settled.refusal ELSE watch.refusal END,
         refusal_detail = CASE WHEN is_read THEN settled.refusal_detail ELSE watch.refusal_detail END
       FROM locked JOIN settled USING (token) WHERE watch.token = locked.token)
     SELECT token, locked.asked_at AS requested_at FROM locked JOIN settled USING (token)
     WHERE is_read AND locked.asked_at > newest_request`,
    [JSON.stringify(rows), now],
  );
  return answered.map(({ token, requested_at }) => ({ token, requestedAt: requested_at, readAt: now }));
}

/** Clears the alarms `<prefix><token>` of tokens that are no longer common. */
export async function clearAlarmsOfUncommon(pool: Pool, prefix: string): Promise<void> {
  await pool.query(
    `DELETE FROM tds.alarms WHERE starts_with(name, $1) AND NOT EXISTS (
       SELECT 1 FROM tds.price_watch WHERE common AND token = substr(name, length($1) + 1))`,
    [prefix],
  );
}

function settledColumns({ claim, verdict, dueAt }: Settlement) {
  const { last, candidate } = verdict === null ? claim : stateAfter(claim, verdict);
  const refusal = verdict?.kind === 'refused' ? verdict : null;
  return {
    token: claim.token,
    claimed_until: claim.claimedUntil,
    due_at: dueAt,
    is_read: verdict !== null,
    price: last?.price ?? null,
    observed_at: last?.observedAt ?? null,
    is_published: verdict?.kind === 'accepted',
    candidate_price: candidate?.price ?? null,
    candidate_observed_at: candidate?.observedAt ?? null,
    candidate_confirmations: candidate?.confirmations ?? 0,
    refusal: refusal?.reason ?? null,
    refusal_detail: refusal === null ? null : storable(refusal.detail),
  };
}

const stateRow = z.object({
  /** Of the last reading; null: accepted or unchanged. */
  refusal: z.enum(refusals).nullable(),
  tokens: z.number(),
  /** Unix milliseconds. */
  published_at: z.number().nullable(),
  /** When the first and the last of these readings were, unix milliseconds. */
  from: z.number(),
  to: z.number(),
});
export type PriceState = z.infer<typeof stateRow>;

/** Counts tokens by the refusal of their last reading, with the newest publication of each group. */
export async function priceStates(db: Sql): Promise<PriceState[]> {
  return await sqlRows(
    db,
    stateRow,
    `SELECT refusal, count(*) AS tokens, max(published_at) AS published_at,
       min(read_at) AS "from", max(read_at) AS "to"
     FROM tds.price_watch WHERE read_at IS NOT NULL GROUP BY refusal ORDER BY refusal NULLS FIRST`,
  );
}
