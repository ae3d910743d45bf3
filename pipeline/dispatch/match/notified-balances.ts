import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { PoolClient } from '../../../infra/postgres/client.ts';
import { insertPage, storeInPages } from '../deliveries.ts';
import type { NewDelivery } from '../deliveries.ts';
import { deliveryId } from './identity.ts';
import type { BlockPosition } from './inclusions.ts';

/**
 * `balance.changed` through reorgs. A change that is included again with the same balances is not sent again (decision 75),
 * unless another balance of the pair was sent since it was reverted: the receiver has that one by now. So the last balance
 * that was sent is that of the chain, or one that was sent on top of it and reverted.
 */

const EVENT = 'balance.changed';

/** A change of a pair's balance for one webhook, in the order of the chain. */
export interface BalanceChange extends Pick<NewDelivery, 'webhookId' | 'body' | 'createdAt'> {
  /** Id of account and token. */
  readonly pair: string;
  /** What distinguishes the change, with its balances, from every other one. */
  readonly parts: readonly string[];
}

const storedRow = z.object({ id: z.string(), is_superseded: z.boolean(), is_reverted: z.boolean() });
type StoredDelivery = z.infer<typeof storedRow>;

interface Version {
  readonly change: BalanceChange;
  /** How many deliveries of the change another balance of the pair has superseded. */
  version: number;
  stored: StoredDelivery | undefined;
}

const idOf = ({ change: { webhookId, parts }, version }: Version): string =>
  deliveryId(webhookId, EVENT, ...parts, ...(version === 0 ? [] : [version]));

/** Stores the deliveries of an accepted block's changes; returns how many are new. */
export async function notifyBalances(
  tx: PoolClient,
  block: Pick<BlockPosition, 'hash' | 'seq'>,
  changes: Iterable<BalanceChange>,
): Promise<number> {
  return await storeInPages(tx, changes, async (page) => await notifyPage(tx, block, page));
}

/** The pages of a block in turn: what one supersedes is superseded for the next. */
async function notifyPage(
  tx: PoolClient,
  { hash, seq }: Pick<BlockPosition, 'hash' | 'seq'>,
  changes: readonly BalanceChange[],
): Promise<number> {
  const delivery = (of: Version): NewDelivery => {
    const { webhookId, body, createdAt, pair } = of.change;
    return {
      id: idOf(of),
      webhookId,
      event: EVENT,
      body,
      createdAt,
      inclusion: { subject: pair, hash, seq },
    };
  };
  const changedPairs = new Set<string>();
  const included: NewDelivery[] = [];
  const created: NewDelivery[] = [];
  for (const { change, version, stored } of await currentVersions(tx, changes)) {
    const webhookPair = `${change.webhookId} ${change.pair}`;
    // A reverted change that follows a new one of its pair in the block must arrive after it.
    const isSuperseded = stored !== undefined && stored.is_reverted && changedPairs.has(webhookPair);
    if (stored !== undefined && !isSuperseded) included.push(delivery({ change, version, stored }));
    else {
      changedPairs.add(webhookPair);
      created.push(delivery({ change, version: isSuperseded ? version + 1 : version, stored }));
    }
  }
  await insertPage(tx, included);
  await supersedeReverted(tx, created);
  await insertPage(tx, created);
  return created.length;
}

/** The delivery of each change that no other one has superseded. */
async function currentVersions(tx: PoolClient, changes: readonly BalanceChange[]): Promise<Version[]> {
  const versions: Version[] = changes.map((change) => ({ change, version: 0, stored: undefined }));
  for (let open = versions; open.length > 0;) {
    const stored = await storedDeliveries(tx, open.map(idOf));
    for (const one of open) one.stored = stored.get(idOf(one));
    open = open.filter((one) => one.stored?.is_superseded === true);
    for (const one of open) one.version += 1;
  }
  return versions;
}

async function storedDeliveries(
  tx: PoolClient,
  ids: readonly string[],
): Promise<ReadonlyMap<string, StoredDelivery>> {
  const rows = await sqlRows(
    tx,
    storedRow,
    `SELECT id, coalesce(block_hash, '-') = '' AS is_superseded, reverted_height IS NOT NULL AS is_reverted
     FROM tds.webhook_deliveries WHERE id = ANY ($1::uuid[])`,
    [ids],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

/** Marks the reverted deliveries of the same webhooks and pairs as superseded: their block hash becomes empty. */
async function supersedeReverted(tx: PoolClient, created: readonly NewDelivery[]): Promise<void> {
  if (created.length === 0) return;
  await tx.query(
    `UPDATE tds.webhook_deliveries d SET block_hash = '', reverted_height = NULL, reverted_seq = NULL
     FROM (SELECT DISTINCT * FROM unnest($1::bigint[], $2::uuid[]) AS created (webhook_id, subject)) AS created
     WHERE d.reverted_height IS NOT NULL AND d.event = $3
       AND d.webhook_id = created.webhook_id AND d.subject = created.subject`,
    [
      created.map(({ webhookId }) => webhookId),
      created.map(({ inclusion }) => inclusion?.subject ?? null),
      EVENT,
    ],
  );
}

/**
 * Marks the deliveries of a reverted block, until it is included again. One that has been included again already stays: a
 * previous holder of the chunk's lease published the revert late.
 */
export async function revertBalances(tx: PoolClient, { height, hash, seq }: BlockPosition): Promise<void> {
  await tx.query(
    `UPDATE tds.webhook_deliveries SET reverted_height = $2, reverted_seq = $3
     WHERE block_hash = $1 AND event = $4 AND block_seq < $3`,
    [hash, height, seq, EVENT],
  );
}
