import { z } from 'zod';

import type { Logger } from '../../infra/log.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { blockHash } from '../../schemas/commitment/block-hash.ts';
import { hasEvents } from '../../schemas/commitment/check.ts';
import { AppError } from '../../schemas/errors.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';
import type { FetchedBlock } from '../node/types.ts';
import type { EventCheckDeps } from './event-checks.ts';
import type { IngestMetrics } from './metrics.ts';
import type { IngestNode } from './ports.ts';

export interface HashCheckDeps {
  readonly node: IngestNode;
  readonly versions: HashedVersions;
  /** As of event commitments; `refuse` is `all`. */
  readonly mode: EventCheckDeps['mode'];
  readonly metrics: Pick<IngestMetrics, 'hashChecks'>;
  readonly log: Logger;
}

/** Starknet versions of which a block was found whose hash is that of its header. They outlive the process. */
export interface HashedVersions {
  all(): Promise<readonly string[]>;
  add(version: string): Promise<void>;
}

const versionsRow = z.object({ hashed_versions: z.array(z.string()) });

export function createHashedVersions(db: Sql): HashedVersions {
  return {
    async all() {
      const [row] = await sqlRows(db, versionsRow, 'SELECT hashed_versions FROM tds.chain', []);
      return row?.hashed_versions ?? [];
    },
    async add(version) {
      const sql = `UPDATE tds.chain SET hashed_versions = array_append(hashed_versions, $1)
        WHERE NOT $1 = ANY (hashed_versions)`;
      await sqlRows(db, z.unknown(), sql, [version]);
    },
  };
}

/** Blocks of another hash after which the stored versions are read again: another process may have found one. */
const READ_EVERY = 16;

/**
 * A node whose blocks have the hash of their headers, as far as that is known to be computed in this way: from the first block of
 * a Starknet version that has it, a block of the version that does not is refused and fetched again. A chain that makes up its
 * hashes, or a version that computes them in another way, can be indexed.
 */
export function withHashChecks({ node, versions, mode, metrics, log }: HashCheckDeps): IngestNode {
  if (mode === 'off') return node;
  const known = new Set<string>();
  let others = 0;

  const isKnown = async (version: string): Promise<boolean> => {
    if (known.has(version)) return true;
    if (others % READ_EVERY === 0) for (const stored of await versions.all()) known.add(stored);
    return known.has(version);
  };
  const learn = async (version: string): Promise<void> => {
    if (known.has(version)) return;
    await versions.add(version);
    known.add(version);
    log.info(
      { version },
      'block hashes match their headers: blocks of this version that do not match are refused',
    );
  };
  const check = async ({ body }: FetchedBlock): Promise<void> => {
    const found = blockHash(body);
    if (found === null) return;
    const { height, hash, starknet_version: version } = body;
    if (found === hash) {
      metrics.hashChecks.inc({ outcome: 'verified' });
      return await learn(version);
    }
    if (isIncomplete(body)) return metrics.hashChecks.inc({ outcome: 'incomplete' });
    if (mode !== 'record' && (await isKnown(version))) {
      metrics.hashChecks.inc({ outcome: 'refused' });
      throw new AppError('BLOCK_MISMATCHED', `block ${height}: its header does not have its hash`, {
        retryable: true,
        details: { height, hash },
      });
    }
    if (others === 0) log.info({ height, hash }, 'the header of a block does not have its hash');
    others += 1;
    metrics.hashChecks.inc({ outcome: 'mismatched' });
  };
  return {
    ...node,
    async getBlockWithReceipts(id, options) {
      const block = await node.getBlockWithReceipts(id, options);
      await check(block);
      return block;
    },
  };
}

/** Nodes show zero for commitments that they do not know; of what a block does not have, zero is the commitment. */
function isIncomplete(body: FetchedBlock['body']): boolean {
  const { header, transactions } = body;
  if (header === undefined) return true;
  return (
    header.state_diff_commitment === ZERO_FELT ||
    (hasEvents(body) && header.event_commitment === ZERO_FELT) ||
    (transactions.length > 0 &&
      [header.transaction_commitment, header.receipt_commitment].includes(ZERO_FELT))
  );
}
