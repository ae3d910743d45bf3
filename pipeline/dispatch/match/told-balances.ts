import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { PoolClient } from '../../../infra/postgres/client.ts';
import { insertDeliveries } from '../deliveries.ts';
import type { NewDelivery } from '../deliveries.ts';
import { deliveryId } from './identity.ts';
import type { Landed } from './landings.ts';

/**
 * What was told of balances, through forks. A change that lands again with the same balances around it is not told again
 * (decision 75), unless something else was told of the pair since it was taken back: the receiver believes that by now. So
 * the last that was told is what the chain says, or was told on top of it and taken back.
 */

const EVENT = 'balance.changed';

/** A change of a pair's balance for one webhook, in the order of the chain. */
export interface ToldBalance extends Pick<NewDelivery, 'webhookId' | 'body' | 'createdAt'> {
  /** Names account and token. */
  readonly pair: string;
  /** What tells the change, with the balances around it, from every other one. */
  readonly parts: readonly string[];
}

const toldRow = z.object({ id: z.string(), is_replaced: z.boolean(), is_reverted: z.boolean() });
type Told = z.infer<typeof toldRow>;

interface Named {
  readonly told: ToldBalance;
  /** How often it was told, and something else in its place since. */
  times: number;
  known: Told | undefined;
}

const idOf = ({ webhookId, parts }: ToldBalance, times: number): string =>
  deliveryId(webhookId, EVENT, ...parts, ...(times === 0 ? [] : [times]));

/** A block took its height, with these changes in it; how many of them are told. */
export async function tellBalances(
  tx: PoolClient,
  { hash, seq }: Pick<Landed, 'hash' | 'seq'>,
  changes: readonly ToldBalance[],
): Promise<number> {
  const delivery = (told: ToldBalance, times: number): NewDelivery => {
    const { webhookId, body, createdAt, pair } = told;
    const landing = { subject: pair, hash, seq };
    return { id: idOf(told, times), webhookId, event: EVENT, body, createdAt, landing };
  };
  const pairs = new Set<string>();
  const landed: NewDelivery[] = [];
  const made: NewDelivery[] = [];
  for (const { told, times, known } of await withKnown(tx, changes)) {
    const of = `${told.webhookId} ${told.pair}`;
    // What comes after something new in its block comes after that for the receiver, too.
    const isReplaced = known !== undefined && known.is_reverted && pairs.has(of);
    if (known !== undefined && !isReplaced) landed.push(delivery(told, times));
    else {
      pairs.add(of);
      made.push(delivery(told, isReplaced ? times + 1 : times));
    }
  }
  await insertDeliveries(tx, landed);
  await replaceReverted(tx, made);
  await insertDeliveries(tx, made);
  return made.length;
}

/** What is known of each change under the id that it has by now. */
async function withKnown(tx: PoolClient, changes: readonly ToldBalance[]): Promise<Named[]> {
  const found: Named[] = changes.map((told) => ({ told, times: 0, known: undefined }));
  for (let open = found; open.length > 0;) {
    const known = await toldOf(
      tx,
      open.map(({ told, times }) => idOf(told, times)),
    );
    for (const one of open) one.known = known.get(idOf(one.told, one.times));
    open = open.filter((one) => one.known?.is_replaced === true);
    for (const one of open) one.times += 1;
  }
  return found;
}

async function toldOf(tx: PoolClient, ids: readonly string[]): Promise<ReadonlyMap<string, Told>> {
  const rows = await sqlRows(
    tx,
    toldRow,
    `SELECT id, coalesce(landed_hash, '-') = '' AS is_replaced, reverted_height IS NOT NULL AS is_reverted
     FROM tds.webhook_deliveries WHERE id = ANY ($1::uuid[])`,
    [ids],
  );
  return new Map(rows.map((row) => [row.id, row]));
}

/** These take the place of what was taken back of their pairs. */
async function replaceReverted(tx: PoolClient, made: readonly NewDelivery[]): Promise<void> {
  if (made.length === 0) return;
  await tx.query(
    `UPDATE tds.webhook_deliveries d SET landed_hash = '', reverted_height = NULL, reverted_seq = NULL
     FROM (SELECT DISTINCT * FROM unnest($1::bigint[], $2::uuid[]) AS told (webhook_id, subject)) AS told
     WHERE d.reverted_height IS NOT NULL AND d.event = '${EVENT}'
       AND d.webhook_id = told.webhook_id AND d.subject = told.subject`,
    [made.map(({ webhookId }) => webhookId), made.map(({ landing }) => landing?.subject ?? null)],
  );
}

/** A block lost its height: what was told of its balances is not so, until it lands again. */
export async function takeBackBalances(tx: PoolClient, { height, hash, seq }: Landed): Promise<void> {
  await tx.query(
    `UPDATE tds.webhook_deliveries SET reverted_height = $2, reverted_seq = $3
     WHERE landed_hash = $1 AND event = '${EVENT}'`,
    [hash, height, seq],
  );
}
