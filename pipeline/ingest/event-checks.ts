import { z } from 'zod';

import type { Logger } from '../../infra/log.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { checkEvents, hasEvents } from '../../schemas/commitment/check.ts';
import { AppError } from '../../schemas/errors.ts';
import type { CallOptions, FetchedBlock } from '../node/types.ts';
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
/** Mismatches for which other blocks are asked for, and compared first. */
const PROBED = 8;
/** Blocks below the newest that are compared each. */
const LATEST = 64;
const SAMPLED_EVERY = 16;

/**
 * A node whose blocks are compared with the event commitments of their headers, and carry the outcome.
 *
 * A chain that shows commitments of another kind (a simulated node, or one that pretends a newer version) never has a block
 * that matches, so it can be indexed. Where one has matched, a block that does not is altered or short: it is refused and
 * fetched again, like one that does not match its counts. Before the first match, other blocks are compared to find one.
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

  /** Whether another block matches: its neighbours, the newest, and the middle one. */
  const findMatch = async (height: number, options: CallOptions | undefined): Promise<boolean> => {
    const others = new Set([height - 1, height + 1, newest, Math.floor(newest / 2)]);
    for (const other of others) {
      if (other === height || other < 0) continue;
      const block = await node.getBlockWithReceipts(other, options).catch(() => null);
      if (block === null || !hasEvents(block.body)) continue;
      if (checkEvents(block.body, block.eventCommitment) !== 'verified') continue;
      await learn();
      return true;
    }
    return false;
  };
  /** Shared by the blocks that are fetched meanwhile. */
  let finding: Promise<boolean> | null = null;
  const isKnownElsewhere = async (height: number, options: CallOptions | undefined): Promise<boolean> => {
    finding ??= findMatch(height, options).finally(() => (finding = null));
    return await finding;
  };
  const isRefused = async (height: number, options: CallOptions | undefined): Promise<boolean> => {
    if (mode === 'refuse' || mode === 'record') return mode === 'refuse';
    return (await hold()) || (mismatches < PROBED && (await isKnownElsewhere(height, options)));
  };

  const isLeftOut = (height: number): boolean => {
    const isFarBelow = height < newest - LATEST;
    if (mode === 'head' && isFarBelow) return true;
    if (height % SAMPLED_EVERY === 0) return false;
    if (mode === 'sample' && isFarBelow) return true;
    return mismatches >= STRANGE_AFTER && mode !== 'refuse' && !isKnown;
  };

  const check = async (block: FetchedBlock, options: CallOptions | undefined): Promise<FetchedBlock> => {
    const { body, ...rest } = block;
    if (isLeftOut(body.height)) return block;
    const outcome = checkEvents(body, rest.eventCommitment);
    const { height, hash } = body;
    if (outcome === 'verified' && hasEvents(body)) await learn();
    if (outcome === 'mismatched') {
      if (await isRefused(height, options)) {
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
    getBlockWithReceipts: async (id, options) =>
      await check(await node.getBlockWithReceipts(id, options), options),
  };
}

function mismatched(height: number, hash: string): AppError {
  return new AppError(
    'BLOCK_MISMATCHED',
    `block ${height}: its events do not match the event_commitment of its header`,
    { retryable: true, details: { height, hash } },
  );
}
