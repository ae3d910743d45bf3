import { createHash } from 'node:crypto';

import { pairKey } from '../../projections/balances/queries.ts';
import type { Pair } from '../../projections/balances/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { AccountBalanceData, BalanceData } from '../../schemas/api/balances.ts';
import { eventIndex } from '../../schemas/decode/index.ts';
import { valueText } from '../../schemas/money.ts';
import { decimalsOfToken } from '../tokens/present.ts';
import { iso, isoSeconds } from '../http/times.ts';
import type { FreshBalance } from './current.ts';
import type { HistoryRow } from './history.ts';

type KnownBalance = FreshBalance & { readonly balance: bigint };

const freshness = ({ lastUpdated, isStale }: FreshBalance) => ({
  last_updated: iso(lastUpdated),
  ...(isStale ? { stale: true as const } : {}),
});

export function presentBalance(known: KnownBalance, price: string | undefined): BalanceData {
  const { pair, token, balance } = known;
  const usd = price === undefined ? null : valueText(balance, decimalsOfToken(token), price);
  return {
    account_address: pair.account,
    token_address: pair.token,
    balance: balance.toString(),
    balance_usd: usd === null ? 0 : Number(usd),
    ...freshness(known),
  };
}

/** Stable id that is a safe integer: the first 52 bits of SHA-256 (decision 68). */
function pairId(pair: Pair): number {
  return Number.parseInt(createHash('sha256').update(pairKey(pair)).digest('hex').slice(0, 13), 16);
}

export function presentAccountBalance(known: KnownBalance, price: string | undefined): AccountBalanceData {
  const { pair, token, balance } = known;
  return {
    id: pairId(pair),
    account: { address: pair.account },
    token: {
      address: pair.token,
      symbol: token?.symbol ?? '',
      name: token?.name ?? '',
      decimals: decimalsOfToken(token),
      current_price_usd: price ?? null,
      logo: token?.logo ?? null,
    },
    balance: balance.toString(),
    balance_usd: (price === undefined ? null : valueText(balance, decimalsOfToken(token), price)) ?? '0',
    ...freshness(known),
  };
}

export function presentHistoryRow(row: HistoryRow, token: TokenRow | undefined, price: string | null) {
  const usd = price === null ? null : valueText(row.balance, decimalsOfToken(token), price);
  return {
    time: isoSeconds(row.timestamp),
    block_number: row.block,
    event_index: eventIndex(row.position, row.item),
    balance: row.balance.toString(),
    token_price_usd: price === null ? null : Number(price),
    balance_usd: usd === null ? null : Number(usd),
  };
}
