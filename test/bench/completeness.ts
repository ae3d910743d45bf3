import { z } from 'zod';

import type { Truth } from './chain.ts';
import type { Completeness } from './case.ts';
import type { Stores } from './stores.ts';

const countRow = z.object({ subject: z.string(), n: z.coerce.number() });

/** Counts of every table of chain.blocks, compared with the transfers that the node intended. */
export async function chainCompleteness(stores: Stores, truth: Truth): Promise<Completeness[]> {
  const { number, query } = stores;
  const one = async (what: string, expected: number, sql: string): Promise<Completeness> => ({
    what,
    expected,
    found: await number(sql),
  });
  const sides = total(truth.byAccount);
  const perToken = await query(
    `SELECT concat('0x', lower(hex(token))) AS subject, count() AS n FROM {{transfers}} FINAL GROUP BY subject`,
    countRow,
  );
  const perAccount = await query(
    `SELECT concat('0x', lower(hex(account))) AS subject, count() AS n FROM {{account_feed}} FINAL GROUP BY subject`,
    countRow,
  );
  const counted = (kind: 1 | 2): Promise<z.infer<typeof countRow>[]> =>
    query(
      `SELECT concat('0x', lower(hex(subject))) AS subject, sum(transfers) AS n FROM {{transfer_counts}} FINAL
       WHERE subject_kind = ${kind} GROUP BY subject`,
      countRow,
    );
  const known = await number(`SELECT count() AS n FROM {{transfers}} FINAL WHERE kind != 'unknown'`);
  const nfts = await number(
    `SELECT count() AS n FROM {{transfers}} FINAL WHERE kind IN ('erc721', 'erc1155')`,
  );
  return [
    await one('transfers', truth.transfers, 'SELECT count() AS n FROM {{transfers}} FINAL'),
    apart('transfers of each token', truth.byToken, perToken),
    await one('account_feed', sides, 'SELECT count() AS n FROM {{account_feed}} FINAL'),
    apart('account_feed of each account', truth.byAccount, perAccount),
    await one(
      'account_ledger, two legs a transfer',
      2 * known,
      'SELECT count() AS n FROM {{account_ledger}} FINAL',
    ),
    await one(
      'tokens whose legs do not sum to zero',
      0,
      `SELECT count() AS n FROM (SELECT token, sum(delta) AS legs FROM {{account_ledger}} FINAL GROUP BY token) WHERE legs != 0`,
    ),
    await one('nft_transfers', nfts, 'SELECT count() AS n FROM {{nft_transfers}} FINAL'),
    await one('nft_places', nfts, 'SELECT count() AS n FROM {{nft_places}} FINAL'),
    await one(
      'tx_index, keys',
      truth.transfers,
      'SELECT sum(length(positions)) AS n FROM {{tx_index}} FINAL',
    ),
    apart('transfer_counts of each token', truth.byToken, await counted(1)),
    apart('transfer_counts of each account', truth.byAccount, await counted(2)),
    await one('indexed_blocks', truth.blocks, 'SELECT count() AS n FROM {{indexed_blocks}} FINAL'),
    await one(
      'indexed_blocks, transactions',
      truth.transactions,
      'SELECT sum(transactions) AS n FROM {{indexed_blocks}} FINAL',
    ),
    await one(
      'indexed_blocks, events',
      truth.events,
      'SELECT sum(events) AS n FROM {{indexed_blocks}} FINAL',
    ),
    await one(
      'indexed_blocks, malformed events',
      truth.malformed,
      'SELECT sum(malformed) AS n FROM {{indexed_blocks}} FINAL',
    ),
    await one(
      'indexed_block_ranges, transfers',
      truth.transfers,
      'SELECT sum(transfers) AS n FROM {{indexed_block_ranges}} FINAL',
    ),
  ];
}

/** Sum of the differences between two counts, by subject. */
export function apart(
  what: string,
  expected: Readonly<Record<string, number>>,
  found: readonly { subject: string; n: number }[],
): Completeness {
  const rest = new Map(Object.entries(expected));
  let wrong = 0;
  for (const { subject, n } of found) {
    wrong += Math.abs(n - (rest.get(subject) ?? 0));
    rest.delete(subject);
  }
  for (const n of rest.values()) wrong += n;
  return { what: `${what} (rows that differ)`, expected: 0, found: wrong };
}

function total(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, n) => sum + n, 0);
}
