import type { ServedBuilds } from '../served.ts';
import { feltParam } from '../transfer-reads.ts';
import type { TransferSource } from '../transfer-reads.ts';

/** An account's transfers, in the order of the key: all, only outgoing, or only incoming ones. */
export function transfersOfAccount(
  tables: Pick<ServedBuilds, 'table'>,
  filter: 'account' | 'from' | 'to' | 'search',
): TransferSource {
  const legs = { account: '', search: '', from: ' AND leg IN (1, 3)', to: ' AND leg IN (2, 3)' }[filter];
  return {
    sql: `FROM ${tables.table('account_feed')} FINAL WHERE account = ${feltParam(filter)}${legs}`,
    settles: [filter],
  };
}
