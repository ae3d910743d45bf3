import type { Wallet } from '../../projections/catalogue/queries.ts';
import type { WalletAnswer } from '../../schemas/api/wallets.ts';
import { iso, isoOrNull } from '../http/times.ts';

export function presentWallet({
  last_activity_at: lastAt,
  created_at,
  updated_at,
  ...wallet
}: Wallet): WalletAnswer {
  return {
    ...wallet,
    last_activity_at: isoOrNull(lastAt),
    created_at: iso(created_at),
    updated_at: iso(updated_at),
  };
}
