import { z } from 'zod';

import type { Logger } from '../../infra/log.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { checkEvents } from '../../schemas/commitment/check.ts';
import { AppError } from '../../schemas/errors.ts';
import type { FetchedBlock } from '../node/types.ts';
import type { IngestMetrics } from './metrics.ts';
import type { IngestNode } from './ports.ts';

export interface EventCheckDeps {
  readonly node: IngestNode;
  readonly commitments: KnownCommitments;
  /**
   * Far below the newest, `sample` compares one block in sixteen and `head` none, for the speed of a backfill; the others
   * compare every block. `refuse` refuses a mismatched block always, `record` never, the others once the commitments of the
   * chain are known to hold.
   */
  readonly mode: 'sample' | 'all' | 'head' | 'refuse' | 'record' | 'off';
  readonly metrics: Pick<IngestMetrics, 'eventChecks'>;
  readonly log: Logger;
}

/** Whether a block with events was ever found to match its commitment. It outlives the process. */
export interface KnownCommitments {
  hold(): Promise<boolean>;
  markHeld(): Promise<void>;
}

const knownRow = z.object({ commitments_hold: z.boolean() });

export function createKnownCommitments(db: Sql): KnownCommitments {
  return {
    async hold() {
      const [row] = await sqlRows(db, knownRow, 'SELECT commitments_hold FROM tds.chain', []);
      return row?.commitments_hold ?? false;
    },
    async markHeld() {
      await sqlRows(db, z.unknown(), 'UPDATE tds.chain SET commitments_hold = true', []);
    },
  };
}

/** So many mismatches without a match show a chain whose commitments are of another kind. */
const STRANGE_AFTER = 64;
/** Blocks below the newest that are compared each. */
const LATEST = 64;
const SAMPLED_EVERY = 16;

/**
 * A node whose blocks are compared with the event commitments of their headers, and carry the outcome.
 *
 * A chain that shows commitments of another kind (a simulated node, or one that pretends a newer version) never has a block
 * that matches, so it can be indexed. Where one has matched, a block that does not is altered or short: it is refused and
 * fetched again, like one that does not match its counts.
 */
export function withEventChecks({ node, commitments, mode, metrics, log }: EventCheckDeps): IngestNode {
  if (mode === 'off') return node;
  let isKnown = false;
  let mismatches = 0;
  /** The highest height that the node has reported. */
  let newest = 0;

  const hold = async (): Promise<boolean> => (isKnown ||= await commitments.hold());
  const learn = async (): Promise<void> => {
    if (await hold()) return;
    await commitments.markHeld();
    isKnown = true;
    log.info('event commitments match: blocks that do not match theirs are refused');
  };

  const isLeftOut = (height: number): boolean => {
    const isFarBelow = height < newest - LATEST;
    if (mode === 'head' && isFarBelow) return true;
    if (height % SAMPLED_EVERY === 0) return false;
    if (mode === 'sample' && isFarBelow) return true;
    return mismatches >= STRANGE_AFTER && mode !== 'refuse' && !isKnown;
  };

  const check = async (block: FetchedBlock): Promise<FetchedBlock> => {
    const { body, ...rest } = block;
    if (isLeftOut(body.height)) return block;
    const outcome = checkEvents(body, rest.eventCommitment);
    const { height, hash, transactions } = body;
    if (outcome === 'verified' && transactions.some(({ events }) => events.length > 0)) await learn();
    if (outcome === 'mismatched') {
      const isRefused = mode === 'refuse' || (mode !== 'record' && (await hold()));
      if (isRefused) {
        metrics.eventChecks.inc({ outcome: 'refused' });
        throw mismatched(height, hash);
      }
      if (mismatches === 0)
        log.warn({ height, hash }, 'events of a block do not match the commitment in its header');
      mismatches += 1;
    }
    metrics.eventChecks.inc({ outcome });
    return { ...rest, body: { ...body, event_check: outcome } };
  };
  return {
    ...node,
    async blockHashAndNumber(...args) {
      const found = await node.blockHashAndNumber(...args);
      newest = Math.max(newest, found?.height ?? 0);
      return found;
    },
    getBlockWithReceipts: async (id, options) => await check(await node.getBlockWithReceipts(id, options)),
  };
}

function mismatched(height: number, hash: string): AppError {
  return new AppError(
    'BLOCK_MISMATCHED',
    `block ${height}: its events do not match the event_commitment of its header`,
    { retryable: true, details: { height, hash } },
  );
}
