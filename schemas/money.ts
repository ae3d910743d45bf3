import type { TokenStandard } from './messages/common.ts';

/** Exact decimal arithmetic of amounts and prices. */

/** An exact number: `digits` with the point before the last `places` of them. */
export interface Decimal {
  readonly digits: bigint;
  readonly places: number;
}

const DECIMAL = /^([0-9]+)(?:\.([0-9]+))?$/;

/** A raw amount at a price, exactly; null when the price is no decimal. */
export function valueAt(balance: bigint, decimals: number, price: string): Decimal | null {
  const [, whole, fraction = ''] = DECIMAL.exec(price) ?? [];
  if (whole === undefined) return null;
  return { digits: balance * BigInt(whole + fraction), places: decimals + fraction.length };
}

/** Without trailing zeros. */
export function decimalText({ digits, places }: Decimal): string {
  const text = digits.toString().padStart(places + 1, '0');
  const cut = text.length - places;
  const rest = text.slice(cut).replace(/0+$/, '');
  return rest === '' ? text.slice(0, cut) : `${text.slice(0, cut)}.${rest}`;
}

/** Adds exactly, as many as come. */
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
      for (const [own, sum] of byPlaces) digits += sum * 10n ** BigInt(places - own);
      return { digits, places };
    },
  };
}

/** Negative where the first is less, positive where it is more. */
export function compareDecimals(one: Decimal, other: Decimal): number {
  const difference =
    one.digits * 10n ** BigInt(Math.max(0, other.places - one.places)) -
    other.digits * 10n ** BigInt(Math.max(0, one.places - other.places));
  return difference < 0n ? -1 : Number(difference > 0n);
}

/** A raw amount at a price, exactly, as a decimal string without trailing zeros; null when the price is no decimal. */
export function worth(balance: bigint, decimals: number, price: string): string | null {
  const value = valueAt(balance, decimals, price);
  return value === null ? null : decimalText(value);
}

/** Decimals of a token whose contract gives none: an NFT's values are counts, anything else is taken as 18. */
export function decimalsOf(decimals: number | null, standard: TokenStandard | null): number {
  return decimals ?? (standard === 'erc721' || standard === 'erc1155' ? 0 : 18);
}
