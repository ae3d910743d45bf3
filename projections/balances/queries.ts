import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt, uint } from '../../schemas/messages/common.ts';
import type { ServedBuilds } from '../served.ts';

/** Read side of the balances read from the chain: of those kept for ever, and of those of pairs that nothing moved. */

type Tables = Pick<ServedBuilds, 'schema'>;

/** A balance read from the chain at a block; valid while that block is indexed at its height. */
export interface Anchor {
  readonly block: number;
  readonly hash: Felt;
  readonly balance: bigint;
  /** Unix milliseconds. */
  readonly observedAt: number;
  readonly requestedAt: number;
  /** False: the next read replaces it. */
  readonly isKept: boolean;
}

/** The chain's response that a contract gives no balance. */
export interface Refusal {
  readonly reason: string;
  readonly refusedAt: number;
  readonly requestedAt: number;
}

/** The balances of a pair that were read from the chain. */
export interface ChainReads {
  /** Newest first. */
  readonly anchors: readonly Anchor[];
  readonly refusal: Refusal | null;
}

export interface Pair {
  readonly account: Felt;
  readonly token: Felt;
}

export const pairKey = ({ account, token }: Pair): string => `${account}:${token}`;

const readRow = z.object({
  account: felt,
  token: felt,
  block: z.number(),
  block_hash: felt,
  /** null: the contract gave none. */
  balance: uint.nullable(),
  observed_at: z.number(),
  requested_at: z.number(),
  reason: z.string().nullable(),
  is_kept: z.boolean(),
});

const NONE: ChainReads = { anchors: [], refusal: null };

/** The balances that were read of these pairs; empty for a pair that was never read. */
export async function chainReads(
  db: Sql,
  tables: Tables,
  pairs: readonly Pair[],
): Promise<(pair: Pair) => ChainReads> {
  if (pairs.length === 0) return () => NONE;
  return await readsFrom(
    db,
    tables,
    `JOIN unnest($1::text[], $2::text[]) AS pairs (account, token) USING (account, token)`,
    [pairs.map(({ account }) => account), pairs.map(({ token }) => token)],
  );
}

/** The balances that were read of an account, of any token. */
export async function chainReadsOf(
  db: Sql,
  tables: Tables,
  account: Felt,
): Promise<(pair: Pair) => ChainReads> {
  return await readsFrom(db, tables, 'WHERE account = $1', [account]);
}

async function readsFrom(
  db: Sql,
  tables: Tables,
  among: string,
  params: unknown[],
): Promise<(pair: Pair) => ChainReads> {
  const rows = await sqlRows(
    db,
    readRow,
    `SELECT account, token, block, block_hash, balance::text, observed_at, requested_at, NULL AS reason, true AS is_kept
     FROM ${tables.schema('balances')}.anchors ${among}
     UNION ALL
     SELECT account, token, block, block_hash, NULL, refused_at, requested_at, reason, true
     FROM ${tables.schema('balances')}.refusals ${among}
     UNION ALL
     SELECT account, token, block, block_hash, balance::text, observed_at, requested_at, reason, false
     FROM ${tables.schema('unmoved-balances')}.answers ${among}
     ORDER BY block DESC, block_hash`,
    params,
  );
  const found = new Map<string, { anchors: Anchor[]; refusal: Refusal | null }>();
  for (const row of rows) {
    const key = pairKey(row);
    const reads = found.get(key) ?? { anchors: [], refusal: null };
    found.set(key, reads);
    const [at, requestedAt] = [row.observed_at, row.requested_at];
    if (row.balance === null) {
      if (at >= (reads.refusal?.refusedAt ?? 0))
        reads.refusal = { reason: row.reason ?? '', refusedAt: at, requestedAt };
    } else {
      const { block, block_hash: hash, balance, is_kept: isKept } = row;
      reads.anchors.push({ block, hash, balance: BigInt(balance), observedAt: at, requestedAt, isKept });
    }
  }
  // Each table has a refusal only while it is newer than the balances of that table.
  for (const reads of found.values())
    if (reads.anchors.some(({ observedAt }) => observedAt > (reads.refusal?.refusedAt ?? Infinity)))
      reads.refusal = null;
  return (pair) => found.get(pairKey(pair)) ?? NONE;
}
