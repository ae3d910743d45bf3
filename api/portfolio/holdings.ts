import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { compareDecimals, createSum, decimalText, valueAt } from '../../schemas/money.ts';
import type { Decimal } from '../../schemas/money.ts';
import { decimalsOfToken } from '../tokens/present.ts';

/** A non-zero balance. */
export interface Held {
  readonly address: Felt;
  readonly token: TokenRow | undefined;
  readonly balance: bigint;
}

/** US dollars per whole token as decimal strings; tokens without a price are absent. */
export type Prices = ReadonlyMap<Felt, string>;

export interface Holding extends Held {
  /** null: no price. */
  readonly value: { readonly price: string; readonly usd: Decimal } | null;
}

/** The value of an amount of a token; null without a price. */
export function usdOf(
  token: TokenRow | undefined,
  balance: bigint,
  price: string | undefined,
): Decimal | null {
  return price === undefined ? null : valueAt(balance, decimalsOfToken(token), price);
}

export function holdingOf(held: Held, prices: Prices): Holding {
  const price = prices.get(held.address);
  const usd = usdOf(held.token, held.balance, price);
  return { ...held, value: price === undefined || usd === null ? null : { price, usd } };
}

/** Order by value, largest first, then those without a price by address. */
export function byValue(one: Holding, other: Holding): number {
  if (one.value !== null && other.value !== null) {
    const order = compareDecimals(other.value.usd, one.value.usd);
    if (order !== 0) return order;
  }
  const unpriced = Number(one.value === null) - Number(other.value === null);
  return unpriced === 0 ? (one.address < other.address ? -1 : 1) : unpriced;
}

/** The contract's figures of a portfolio; sums are exact. */
export interface Figures {
  readonly total_usd: number;
  readonly tracked_total_usd: number;
  readonly holdings_count: number;
  readonly untracked_count: number;
}

export interface Totals {
  /** Adds a holding's value; null: no price. */
  add(usd: Decimal | null): void;
  figures(): Figures;
}

export function createTotals(): Totals {
  const sum = createSum();
  let [held, untracked] = [0, 0];
  return {
    add(usd) {
      held += 1;
      if (usd === null) untracked += 1;
      else sum.add(usd);
    },
    figures() {
      const usd = Number(decimalText(sum.total()));
      return {
        total_usd: usd,
        tracked_total_usd: usd,
        holdings_count: held,
        untracked_count: untracked,
      };
    },
  };
}
