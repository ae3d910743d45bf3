import type { PoolClient } from '../../infra/postgres/client.ts';

/** Counts that are kept beside the rows; made anew in the transaction that changed many of them. */

export async function recountDomains(tx: PoolClient, schema: string): Promise<void> {
  await tx.query(`DELETE FROM ${schema}.domain_counts`);
  await tx.query(
    `INSERT INTO ${schema}.domain_counts (status, active, n)
     SELECT status, active, count(*) FROM ${schema}.domains GROUP BY status, active`,
  );
}

export async function recountWallets(tx: PoolClient, schema: string): Promise<void> {
  await tx.query(`DELETE FROM ${schema}.wallet_counts`);
  await tx.query(
    `INSERT INTO ${schema}.wallet_counts (network, total, active, verified)
     SELECT network, count(*), count(*) FILTER (WHERE is_active), count(*) FILTER (WHERE is_verified)
     FROM ${schema}.wallets GROUP BY network`,
  );
}

/** One that was registered: active, and not verified. */
export async function countNewWallet(tx: PoolClient, schema: string, network: string): Promise<void> {
  await tx.query(
    `INSERT INTO ${schema}.wallet_counts AS known (network, total, active, verified) VALUES ($1, 1, 1, 0)
     ON CONFLICT (network) DO UPDATE SET total = known.total + 1, active = known.active + 1`,
    [network],
  );
}
