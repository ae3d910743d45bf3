import type { ServedBuilds } from '../served.ts';
import { feltParam } from '../transfer-reads.ts';
import type { TransferSource, VersionedSource } from '../transfer-reads.ts';

const legs = { account: '', search: '', from: ' AND leg IN (1, 3)', to: ' AND leg IN (2, 3)' } as const;

/** An account's transfers, in the order of the key: all, only outgoing, or only incoming ones. */
export function transfersOfAccount(
  tables: Pick<ServedBuilds, 'table'>,
  filter: keyof typeof legs,
): TransferSource {
  return {
    sql: `FROM ${tables.table('account_feed')} FINAL WHERE account = ${feltParam(filter)}${legs[filter]}`,
    settles: [filter],
  };
}

/** Every version of the same rows. */
export function versionsOfAccount(
  tables: Pick<ServedBuilds, 'table'>,
  filter: keyof typeof legs,
): VersionedSource {
  return {
    sql: `FROM ${tables.table('account_feed')} WHERE account = ${feltParam(filter)}${legs[filter]}`,
    key: 'account, block_desc, position_desc, item_desc, leg',
    subject: 'account',
    settles: [filter],
  };
}
