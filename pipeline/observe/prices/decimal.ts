/**
 * Prices keep the digits that their source wrote: a JSON number is taken as the text it stands in, and only rewritten
 * without exponent. `Number` is used where a ratio is estimated, never for what is published.
 */

/** A number of a JSON document, as it is written there. */
export class JsonNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** As `JSON.parse`, but every number comes as the text it was; throws a SyntaxError. */
export function parseJsonExactly(text: string): unknown {
  const keepText = (_key: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === 'number' ? new JsonNumber(context?.source ?? String(value)) : value;
  return JSON.parse(text, keepText);
}

const NUMBER = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,4}))?$/;

/** Beyond, it is no price of anything: a quadrillion dollars. */
const INTEGER_DIGITS = 15;
/** 17 digits, as many as a double has, of a price of 10^-24. */
const FRACTION_DIGITS = 41;

/**
 * A positive number in plain notation: no exponent, no sign, no needless zeros. `null` when it is not a number, not
 * positive, or has more digits than a price has.
 */
export function positiveDecimal(text: string): string | null {
  const decimal = plainDecimal(text);
  return decimal === null || decimal === '0' ? null : decimal;
}

/** As `positiveDecimal`, and 0. */
export function plainDecimal(text: string): string | null {
  const parts = text.length > 200 ? null : NUMBER.exec(text);
  if (parts === null) return null;
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = parts;
  const digits = whole + fraction;
  if (/^0*$/.test(digits)) return '0';
  if (sign !== '') return null;
  /** Where the point stands in `digits`; outside of them it wants zeros. */
  const point = whole.length + Number(exponent);
  if (Math.abs(point) > 400) return null;
  const left = (point > 0 ? digits.slice(0, point).padEnd(point, '0') : '').replace(/^0+/, '');
  const right = (point < 0 ? '0'.repeat(-point) + digits : digits.slice(point)).replace(/0+$/, '');
  if (left.length > INTEGER_DIGITS || right.length > FRACTION_DIGITS) return null;
  return `${left === '' ? '0' : left}${right === '' ? '' : `.${right}`}`;
}

/** How many times the larger of two positive decimals is the smaller; never below 1. */
export function factorBetween(one: string, other: string): number {
  const ratio = Number(one) / Number(other);
  return ratio < 1 ? 1 / ratio : ratio;
}
