import { z } from 'zod';

import { priceStates } from '../../../pipeline/observe/prices/store.ts';
import { checkedHeights } from '../../../projections/indexed-blocks/queries.ts';
import { quarantinedEvents } from '../../../projections/quarantine/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { publicVerificationAnswer } from '../../../schemas/api/verification.ts';
import type { PublicVerificationAnswer } from '../../../schemas/api/verification.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';
import type { OperatorStores } from './status.ts';

type Part<K extends keyof PublicVerificationAnswer> = PublicVerificationAnswer[K];

/** Small reads: some thousand rows of ClickHouse, and a row or a count each of PostgreSQL. */
export async function readPublicVerification({
  pool,
  clickhouse,
}: Pick<OperatorStores, 'pool' | 'clickhouse'>): Promise<PublicVerificationAnswer> {
  const served = await servedBuilds(pool);
  const [checked, commitments, conservation, prices, lastVerify, lastRebuild, quarantined] =
    await Promise.all([
      checkedHeights(clickhouse, served),
      readCommitments(pool),
      readConservation(pool),
      readPrices(pool),
      readLastVerify(pool),
      readLastRebuild(pool),
      quarantinedEvents(pool, served.schema('quarantine')),
    ]);
  const { first, last, blocks, verified, ...reasons } = checked;
  const unverifiable = blocks - verified;
  const { old_version, no_commitment, mismatched } = reasons;
  return {
    heights: {
      first,
      last,
      verified,
      unverifiable,
      reasons: { ...reasons, not_checked: unverifiable - old_version - no_commitment - mismatched },
    },
    commitments,
    conservation,
    prices,
    last_verify: lastVerify,
    last_rebuild: lastRebuild,
    quarantined,
    updated_at: new Date().toISOString(),
  };
}

const isoTime = z.date().transform((at) => at.toISOString());

const commitmentRow = publicVerificationAnswer.shape.commitments.element.extend({ at: isoTime });

async function readCommitments(db: Sql): Promise<Part<'commitments'>> {
  const sql = `SELECT commitment, starknet_version, outcome, blocks, from_height AS "from", to_height AS "to", last_at AS at
    FROM tds.commitment_checks WHERE blocks > 0 ORDER BY commitment, starknet_version, outcome LIMIT 1000`;
  return await sqlRows(db, commitmentRow, sql);
}

const conservationRow = z.object({
  tokens: z.number(),
  nonzero: publicVerificationAnswer.shape.conservation.shape.nonzero,
  at: isoTime,
  to: z.number(),
});

async function readConservation(db: Sql): Promise<Part<'conservation'>> {
  const sql = 'SELECT tokens, nonzero, checked_at AS at, to_height AS "to" FROM tds.conservation';
  const [row] = await sqlRows(db, conservationRow, sql);
  return row ?? { tokens: 0, nonzero: [], at: null, to: null };
}

async function readPrices(db: Sql): Promise<Part<'prices'>> {
  const rows = await priceStates(db);
  const at = (times: readonly number[], pick: (...all: number[]) => number): string | null =>
    times.length === 0 ? null : new Date(pick(...times)).toISOString();
  return {
    tokens: rows.reduce((sum, { tokens }) => sum + tokens, 0),
    refused: rows.flatMap(({ refusal, tokens }) => (refusal === null ? [] : [{ reason: refusal, tokens }])),
    from: at(
      rows.map(({ from }) => from),
      Math.min,
    ),
    to: at(
      rows.map(({ to }) => to),
      Math.max,
    ),
  };
}

const verifyRow = z.object({
  at: isoTime,
  from: z.number().nullable(),
  to: z.number().nullable(),
  differences: z.number(),
});

/**
 * The run over the most heights: of runs over the whole index, the newest. Or a newer one that left differences, of
 * which that run does not know.
 */
async function readLastVerify(db: Sql): Promise<Part<'last_verify'>> {
  const [row] = await sqlRows(
    db,
    verifyRow,
    `WITH runs AS (SELECT * FROM tds.verify_runs WHERE outcome != 'inconclusive'),
       widest AS (SELECT id FROM runs ORDER BY to_height - from_height DESC NULLS LAST, id DESC LIMIT 1)
     SELECT finished_at AS at, from_height AS "from", to_height AS "to", differences FROM runs
     WHERE id = (SELECT id FROM widest) OR id > (SELECT id FROM widest) AND outcome = 'differences'
     ORDER BY id DESC LIMIT 1`,
  );
  return row ?? null;
}

const rebuildRow = z.object({
  projection: z.string(),
  at: isoTime,
  rows: z.number(),
  differences: z.number(),
});

async function readLastRebuild(db: Sql): Promise<Part<'last_rebuild'>> {
  const [row] = await sqlRows(
    db,
    rebuildRow,
    `SELECT array_to_string(projections, ', ') AS projection, finished_at AS at, rows_compared AS rows, differences
     FROM tds.rebuild_runs WHERE state = 'finished' AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 1`,
  );
  return row ?? null;
}
