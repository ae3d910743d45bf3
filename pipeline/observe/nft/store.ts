import { z } from 'zod';

import { countOf, inTransaction, prepared, sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, Sql } from '../../../infra/postgres/client.ts';
import { metadataOf } from '../../../projections/nft-metadata/queries.ts';
import type { Nft, NftMetadataRow } from '../../../projections/nft-metadata/queries.ts';
import { nftKey } from '../../../projections/nft-metadata/queries.ts';
import { felt, tokenStandard, uint } from '../../../schemas/messages/common.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import type { NftMessage } from '../../../schemas/messages/nft.ts';
import { storable } from '../../../schemas/text.ts';
import { CLAIM_MS, bringForward, createClaimUpdate } from '../claims.ts';
import type { TaskTable } from '../claims.ts';
import { OBSERVER_BACKOFF } from '../observer.ts';
import { createPendingRequests, storePending } from '../pending.ts';
import type { TaskStore } from '../worker.ts';

export const OBSERVER = 'nft';

export interface NftTask extends Nft {
  readonly standard: TokenStandard;
  /** A minted NFT may have failed before it existed, or after it was burned. */
  readonly isMint?: boolean;
}

export interface NftRequest extends Nft {
  readonly caller?: string | undefined;
}

const claimRow = z
  .object({
    token: felt,
    token_id: uint,
    standard: tokenStandard,
    failures: z.number(),
    troubles: z.number(),
    message: z.unknown(),
    next_at: z.number(),
    is_requested: z.boolean(),
  })
  .transform(
    ({ token, token_id: tokenId, standard, failures, troubles, message, next_at, is_requested }) => ({
      subject: `${token}:${tokenId}`,
      task: { token, tokenId, standard, failures },
      attempts: troubles,
      message,
      next_at,
      is_requested,
    }),
  );
export type NftClaim = z.infer<typeof claimRow>;

const keyRow = z
  .object({ token: felt, token_id: uint })
  .transform(({ token, token_id: tokenId }) => ({ token, tokenId }));

const TABLE: TaskTable<NftClaim> = {
  name: 'tds.nft_fetches',
  key: { token: 'text', token_id: 'numeric' },
  keyOf: ({ task: { token, tokenId } }) => ({ token, token_id: tokenId }),
};
/** How often one claim stores requests: each time delays the tasks that are due already. */
const MAX_STORES_PER_CLAIM = 25;
/** Tolerated difference between the clocks of two observers. */
const CLOCK_SKEW_MS = 5000;

export interface NftStore extends TaskStore<NftClaim, NftMessage> {
  /** Stores tasks; returns how many are new. */
  add(tasks: readonly NftTask[], now: number): Promise<number>;
  /**
   * Adds requests to the lines of their callers. A claim puts as many NFTs as it may take first, except those that are
   * fetched or wait for their backoff.
   */
  request(requests: readonly NftRequest[], now: number): void;
  /** Stores the host of a claimed task. */
  setHost(task: NftTask, host: string | null): Promise<unknown>;
}

/**
 * The tasks of the NFT observer (tds.nft_fetches).
 *
 * @param schema of the served read model of metadata; null while none is served
 * @param fullHosts hosts without a free download slot
 * @param retryMaxMs longest delay after a failure
 */
export function createNftStore(
  pool: Pool,
  schema: () => Promise<string | null>,
  fullHosts: () => readonly string[],
  retryMaxMs: number,
): NftStore {
  const maxDelayMs = Math.max(retryMaxMs, OBSERVER_BACKOFF.maxMs) + CLAIM_MS;
  /** Alternates which group a single free slot goes to, so that requests cannot starve the rest. */
  let isOthersTurn = true;
  const pending = createPendingRequests<NftRequest & { readonly requestedAt: number }>({ keyOf: nftKey });
  const storeRequests = async (nfts: readonly Nft[], now: number): Promise<void> => {
    const tasks = nfts.map(({ token, tokenId }) => ({ token, tokenId, standard: 'unknown' as const }));
    await addTasks(pool, schema, tasks, now);
    await markRequested(pool, nfts, { now, maxDelayMs });
  };
  const update = (set: string) => createClaimUpdate(pool, TABLE, set);
  const storeMessage = update('message = new.message');
  const recordOutcome = update(
    `message = NULL, troubles = 0, asked_at = NULL, failures = new.failures, next_at = new.due_at, last_error = new.last_error,
      done_at = new.done_at`,
  );
  const recordTrouble = update('troubles = troubles + 1, next_at = new.due_at, last_error = new.last_error');
  const release = update('next_at = new.due_at');
  return {
    add: (tasks, now) => addTasks(pool, schema, tasks, now),
    request(requests, now) {
      for (const request of requests) pending.add({ ...request, requestedAt: now }, now);
    },
    async claim(limit, now, which) {
      isOthersTurn = which === 'all' && !isOthersTurn;
      const full = fullHosts();
      // Stored NFTs may be fetched already or wait for their backoff: the room is counted again for the next ones.
      for (let stores = 0; stores < MAX_STORES_PER_CLAIM && pending.size() > 0; stores += 1) {
        const room = limit - (await countRequested(pool, now, full));
        const stored = await storePending(pending, { limit: room, now }, (nfts) => storeRequests(nfts, now));
        if (stored === null) break;
      }
      return await claimTasks(pool, { limit, now, which, fullHosts: full, isOthersTurn });
    },
    prepare: (claim, message) => storeMessage(claim, { message }),
    done: (claim, now, message) => recordOutcome(claim, { ...outcomeOf(message), done_at: now }),
    failed: (claim, nextAt, error) =>
      recordTrouble(claim, { due_at: nextAt, last_error: storable(error.slice(0, 2000)) }),
    release: (claim, at) => release(claim, { due_at: at }),
    // The others are brought forward by a request.
    bringForward: (now) => bringForward(pool, TABLE, { which: "standard <> 'unknown'", now, maxDelayMs }),
    setHost: ({ token, tokenId }, host) =>
      pool.query(
        prepared(
          'UPDATE tds.nft_fetches SET host = $3 WHERE token = $1 AND token_id = $2 AND host IS DISTINCT FROM $3',
          [token, tokenId, host],
        ),
      ),
    async backlog() {
      const [row] = await sqlRows(
        pool,
        z.object({ waiting: z.number(), failing: z.number() }),
        `SELECT count(*) AS waiting, count(*) FILTER (WHERE failures + troubles > 0) AS failing
         FROM tds.nft_fetches WHERE next_at IS NOT NULL AND standard <> 'unknown'`,
      );
      return row ?? { waiting: 0, failing: 0 };
    },
  };
}

async function addTasks(
  pool: Pool,
  schema: () => Promise<string | null>,
  tasks: readonly NftTask[],
  now: number,
): Promise<number> {
  if (tasks.length === 0) return 0;
  const missing = await findMissing(pool, tasks);
  const served = missing.length === 0 ? null : await schema();
  // Rows of the read model restore the attempts after a loss of tds.nft_fetches.
  const known = served === null ? new Map() : await metadataOf(pool, served, missing);
  return await inTransaction(pool, async (tx) => {
    const added = await insertTasks(tx, missing, known, now);
    // A row inserted without a history has nothing to reset.
    const inserted = new Set(added === missing.length && known.size === 0 ? missing : []);
    await resetFailures(
      tx,
      tasks.filter((task) => !inserted.has(task)),
      now,
    );
    return added;
  });
}

async function findMissing(pool: Pool, tasks: readonly NftTask[]): Promise<NftTask[]> {
  const stored = await sqlRows(
    pool,
    keyRow,
    `SELECT token, token_id::text AS token_id FROM tds.nft_fetches
     JOIN unnest($1::text[], $2::numeric[]) AS requested (token, token_id) USING (token, token_id)`,
    [tasks.map(({ token }) => token), tasks.map(({ tokenId }) => tokenId)],
  );
  const keys = new Set(stored.map(nftKey));
  return tasks.filter((task) => !keys.has(nftKey(task)));
}

async function insertTasks(
  tx: Sql,
  missing: readonly NftTask[],
  known: ReadonlyMap<string, NftMetadataRow>,
  now: number,
): Promise<number> {
  if (missing.length === 0) return 0;
  const rows = missing.map(({ token, tokenId, standard }) => {
    const row = known.get(nftKey({ token, tokenId }));
    const [failures, next_at] = [row?.attempt_count ?? 0, row === undefined ? now : row.retry_at];
    return { token, token_id: tokenId, standard, failures, next_at };
  });
  // Sorted: two processes that store the same NFTs wait instead of deadlocking.
  const sorted = rows.toSorted((a, b) => (`${a.token}:${a.token_id}` < `${b.token}:${b.token_id}` ? -1 : 1));
  const { rowCount } = await tx.query(
    `INSERT INTO tds.nft_fetches (token, token_id, standard, failures, next_at)
     SELECT token, token_id, standard, failures, next_at
     FROM jsonb_to_recordset($1) AS new (token text, token_id numeric, standard text, failures integer, next_at bigint)
     ON CONFLICT (token, token_id) DO NOTHING`,
    [JSON.stringify(sorted)],
  );
  return rowCount ?? 0;
}

/**
 * Resets the failures of NFTs that a client requested before they were minted, or while they were burned, once a transfer
 * or a new mint is seen. A stored message is published first.
 */
async function resetFailures(tx: Sql, tasks: readonly NftTask[], now: number): Promise<void> {
  const transferred = tasks.filter(({ standard }) => standard !== 'unknown');
  if (transferred.length === 0) return;
  await tx.query(
    `UPDATE tds.nft_fetches AS stored SET standard = new.standard, troubles = 0, failures = 0,
       next_at = CASE WHEN failures > 0 THEN $4 ELSE next_at END
     FROM (SELECT new.* FROM unnest($1::text[], $2::numeric[], $3::text[], $5::boolean[]) AS new (token, token_id, standard, is_mint)
       JOIN tds.nft_fetches AS held USING (token, token_id)
       WHERE held.message IS NULL AND (held.standard = 'unknown' OR (new.is_mint AND held.failures > 0))
       ORDER BY new.token, new.token_id FOR UPDATE OF held) AS new
     WHERE stored.token = new.token AND stored.token_id = new.token_id`,
    [
      transferred.map(({ token }) => token),
      transferred.map(({ tokenId }) => tokenId),
      transferred.map(({ standard }) => standard),
      now,
      transferred.map(({ isMint = false }) => isMint),
    ],
  );
}

async function markRequested(
  pool: Pool,
  nfts: readonly Nft[],
  { now, maxDelayMs }: { readonly now: number; readonly maxDelayMs: number },
): Promise<void> {
  await pool.query(
    `UPDATE tds.nft_fetches SET asked_at = $3, next_at = least(next_at, $3)
       FROM (SELECT token, token_id FROM tds.nft_fetches
         JOIN unnest($1::text[], $2::numeric[]) AS requested (token, token_id) USING (token, token_id)
         WHERE next_at <= $4 OR next_at > $5 ORDER BY token, token_id FOR UPDATE OF nft_fetches) AS wanted
       WHERE nft_fetches.token = wanted.token AND nft_fetches.token_id = wanted.token_id`,
    [
      nfts.map(({ token }) => token),
      nfts.map(({ tokenId }) => tokenId),
      now,
      now + CLOCK_SKEW_MS,
      now + maxDelayMs,
    ],
  );
}

/** A due task whose host has a free slot. */
const DUE = 'next_at <= $1 AND (host IS NULL OR host <> ALL($2))';

async function countRequested(pool: Pool, now: number, fullHosts: readonly string[]): Promise<number> {
  const sql = `SELECT count(*) AS n FROM tds.nft_fetches WHERE ${DUE} AND asked_at IS NOT NULL`;
  return await countOf(pool, sql, [now, fullHosts]);
}

/**
 * Claims due tasks, requested ones and others in turn, none of a host without a free slot. The others have a known transfer:
 * clients may request ids that do not exist.
 */
async function claimTasks(
  pool: Pool,
  {
    limit,
    now,
    which,
    fullHosts,
    isOthersTurn,
  }: {
    readonly limit: number;
    readonly now: number;
    readonly which: 'all' | 'requested';
    readonly fullHosts: readonly string[];
    readonly isOthersTurn: boolean;
  },
): Promise<NftClaim[]> {
  const due = (more: string): string => `(SELECT token, token_id, asked_at, next_at FROM tds.nft_fetches
    WHERE ${DUE} AND ${more} ORDER BY next_at LIMIT $3 FOR UPDATE SKIP LOCKED)`;
  const sql = `WITH requested AS MATERIALIZED ${due('asked_at IS NOT NULL')},
     others AS MATERIALIZED ${due(which === 'all' ? "standard <> 'unknown'" : 'false')},
     due AS (SELECT DISTINCT ON (token, token_id) * FROM (SELECT * FROM requested UNION ALL SELECT * FROM others) AS both_groups),
     ranked AS (SELECT *, row_number() OVER (PARTITION BY asked_at IS NULL ORDER BY next_at) AS rank FROM due),
     chosen AS MATERIALIZED (
       SELECT token, token_id FROM ranked ORDER BY rank, (asked_at IS NULL) <> $5, next_at LIMIT $3)
     UPDATE tds.nft_fetches AS claimed SET next_at = $4 FROM chosen
     WHERE claimed.token = chosen.token AND claimed.token_id = chosen.token_id
     RETURNING claimed.token, claimed.token_id::text AS token_id, standard, failures, troubles, message, next_at,
       asked_at IS NOT NULL AS is_requested`;
  const values = [now, fullHosts, limit, now + CLAIM_MS, isOthersTurn];
  return await sqlRows(pool, claimRow, prepared(sql, values));
}

/** What a published message says: fetched, or failed and due again at its `retry_at`. */
function outcomeOf(message: NftMessage) {
  return message.type === 'nft.metadata_fetched'
    ? { failures: 0, due_at: null, last_error: null }
    : { failures: message.attempt, due_at: message.retry_at, last_error: message.reason };
}

const statesRow = z.object({
  fetched: z.number(),
  waiting: z.number(),
  failing: z.number(),
  given_up: z.number(),
});

/** Counts NFTs by state: fetched, not tried yet, failing and retried, given up. */
export async function nftStates(db: Sql): Promise<z.infer<typeof statesRow>> {
  const [row] = await sqlRows(
    db,
    statesRow,
    `SELECT count(*) FILTER (WHERE next_at IS NULL AND failures = 0) AS fetched,
       count(*) FILTER (WHERE next_at IS NOT NULL AND failures = 0) AS waiting,
       count(*) FILTER (WHERE next_at IS NOT NULL AND failures > 0) AS failing,
       count(*) FILTER (WHERE next_at IS NULL AND failures > 0) AS given_up
     FROM tds.nft_fetches`,
  );
  return row ?? { fetched: 0, waiting: 0, failing: 0, given_up: 0 };
}
