import { isNft } from './messages/common.ts';
import type { TokenStandard } from './messages/common.ts';

/** Exact decimal arithmetic for amounts and prices. */

/** The number `digits` / 10^`places`. */
export interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

const DECIMAL = /^([0-9]+)(?:\.([0-9]+))?$/;

/** The exact value of a raw amount at a price; null if the price is not a decimal. */
export function valueAt(balance: bigint, decimals: number, price: string): Decimal | null {
  const [, whole, fraction = ''] = DECIMAL.exec(price) ?? [];
  if (whole === undefined) return null;
  return { digits: balance * BigInt(whole + fraction), places: decimals + fraction.length };
}

/** As a decimal string without trailing zeros. */
export function decimalText({ digits, places }: Decimal): string {
  const text = digits.toString().padStart(places + 1, '0');
  const cut = text.length - places;
  const rest = text.slice(cut).replace(/0+$/, '');
  return rest === '' ? text.slice(0, cut) : `${text.slice(0, cut)}.${rest}`;
}

/** An exact running sum. */
export interface Sum {
  add(value: Decimal): void;
  total(): Decimal;
}

export function createSum(): Sum {
  const byPlaces = new Map<number, bigint>();
  return {
    add({ digits, places }) {
      byPlaces.set(places, (byPlaces.get(places) ?? 0n) + digits);
    },
    total() {
      const places = Math.max(0, ...byPlaces.keys());
      let digits = 0n;
      for (const [fewer, sum] of byPlaces) digits += sum * 10n ** BigInt(places - fewer);
      return { digits, places };
    },
  };
}

/** Negative if `one` is less than `other`, positive if it is more. */
export function compareDecimals(one: Decimal, other: Decimal): number {
  const difference =
    one.digits * 10n ** BigInt(Math.max(0, other.places - one.places)) -
    other.digits * 10n ** BigInt(Math.max(0, one.places - other.places));
  return difference < 0n ? -1 : Number(difference > 0n);
}

/** `valueAt` as a decimal string without trailing zeros; null if the price is not a decimal. */
export function valueText(balance: bigint, decimals: number, price: string): string | null {
  const value = valueAt(balance, decimals, price);
  return value === null ? null : decimalText(value);
}

/** The token's decimals; if its contract gives none, 0 for NFTs, whose values are counts, else 18. */
export function decimalsOf(decimals: number | null, standard: TokenStandard | null): number {
  return decimals ?? (isNft(standard) ? 0 : 18);
}
