import { PRICE_DECIMALS } from '../../schemas/messages/prices.ts';

/** Prices in the tables are whole numbers of 10^-41 US dollars, so that sums and comparisons are exact. */

/** A price of a message in units. Throws on more decimals than a price has. */
export function unitsOf(price: string): bigint {
  const [whole = '', fraction = ''] = price.split('.');
  if (fraction.length > PRICE_DECIMALS)
    throw new RangeError(`a price has at most ${PRICE_DECIMALS} decimals`);
  return BigInt(whole + fraction.padEnd(PRICE_DECIMALS, '0'));
}

/** Units as a decimal string without needless zeros. */
export function usdOf(units: bigint): string {
  return withPoint(units.toString());
}

function withPoint(units: string): string {
  const digits = units.padStart(PRICE_DECIMALS + 1, '0');
  const point = digits.length - PRICE_DECIMALS;
  let end = digits.length;
  while (end > point && digits[end - 1] === '0') end -= 1;
  return end === point ? digits.slice(0, point) : `${digits.slice(0, point)}.${digits.slice(point, end)}`;
}

/** Digits of a mean: more than any price has. */
const MEAN_DIGITS = 20;
const POWERS = Array.from({ length: 60 }, (_, i) => 10n ** BigInt(i));

/** The mean of prices, exact where it ends within 20 significant digits; else rounded to them, halves up. */
export function meanOf(total: bigint, points: bigint): string {
  const whole = total / points;
  if (whole * points === total) return usdOf(whole);
  const cut = Math.max(0, whole.toString().length - MEAN_DIGITS);
  const unit = points * (POWERS[cut] ?? 1n);
  return withPoint(((2n * total + unit) / (2n * unit)).toString() + '0'.repeat(cut));
}
