import type { Wallet } from '../../projections/catalogue/queries.ts';
import type { WalletAnswer } from '../../schemas/api/wallets.ts';

const iso = (millis: number): string => new Date(millis).toISOString();

export function presentWallet({
  last_activity_at: lastAt,
  created_at,
  updated_at,
  ...wallet
}: Wallet): WalletAnswer {
  return {
    ...wallet,
    last_activity_at: lastAt === null ? null : iso(lastAt),
    created_at: iso(created_at),
    updated_at: iso(updated_at),
  };
}
