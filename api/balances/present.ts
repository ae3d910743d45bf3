import { createHash } from 'node:crypto';

import { pairKey } from '../../projections/balances/queries.ts';
import type { Pair } from '../../projections/balances/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { AccountBalanceData, BalanceData } from '../../schemas/api/balances.ts';
import { eventIndex } from '../../schemas/decode/index.ts';
import { decimalsOf } from '../../schemas/money.ts';
import { isoSeconds } from '../transfers/present.ts';
import { iso } from '../http/times.ts';
import type { FreshBalance } from './current.ts';
import type { HistoryRow } from './history.ts';
import { worth } from '../../schemas/money.ts';

type Known = FreshBalance & { readonly balance: bigint };

const decimals = (token: TokenRow | undefined): number =>
  decimalsOf(token?.decimals ?? null, token?.standard ?? null);

const dated = ({ lastUpdated, isStale }: FreshBalance) => ({
  last_updated: iso(lastUpdated),
  ...(isStale ? { stale: true as const } : {}),
});

export function presentBalance(known: Known, price: string | undefined): BalanceData {
  const { pair, token, balance } = known;
  const usd = price === undefined ? null : worth(balance, decimals(token), price);
  return {
    account_address: pair.account,
    token_address: pair.token,
    balance: balance.toString(),
    balance_usd: usd === null ? 0 : Number(usd),
    ...dated(known),
  };
}

/** Decision 68: the first 52 bits of a hash of account and token. */
export function pairId(pair: Pair): number {
  return Number.parseInt(createHash('sha256').update(pairKey(pair)).digest('hex').slice(0, 13), 16);
}

export function presentAccountBalance(known: Known, price: string | undefined): AccountBalanceData {
  const { pair, token, balance } = known;
  return {
    id: pairId(pair),
    account: { address: pair.account },
    token: {
      address: pair.token,
      symbol: token?.symbol ?? '',
      name: token?.name ?? '',
      decimals: decimals(token),
      current_price_usd: price ?? null,
      logo: token?.logo ?? null,
    },
    balance: balance.toString(),
    balance_usd: (price === undefined ? null : worth(balance, decimals(token), price)) ?? '0',
    ...dated(known),
  };
}

/** Consecutive rows mostly share a block and so a time: formatting it once takes 7 ms for 28,800 rows instead of 20. */
let formatted = { seconds: 0, text: isoSeconds(0) };
function timeOf(seconds: number): string {
  if (formatted.seconds !== seconds) formatted = { seconds, text: isoSeconds(seconds) };
  return formatted.text;
}

export function presentHistoryRow(row: HistoryRow, token: TokenRow | undefined, price: string | null) {
  const usd = price === null ? null : worth(row.balance, decimals(token), price);
  return {
    time: timeOf(row.timestamp),
    block_number: row.block,
    event_index: eventIndex(row.position, row.item),
    balance: row.balance.toString(),
    token_price_usd: price === null ? null : Number(price),
    balance_usd: usd === null ? null : Number(usd),
  };
}
