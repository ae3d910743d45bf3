import type { PoolClient } from '../../infra/postgres/client.ts';

/** Counts stored beside the rows; recomputed in the transaction that changes many rows. */

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

/** Counts a registered wallet, which is active and not verified. */
export async function countNewWallet(tx: PoolClient, schema: string, network: string): Promise<void> {
  await tx.query(
    `INSERT INTO ${schema}.wallet_counts AS known (network, total, active, verified) VALUES ($1, 1, 1, 0)
     ON CONFLICT (network) DO UPDATE SET total = known.total + 1, active = known.active + 1`,
    [network],
  );
}
