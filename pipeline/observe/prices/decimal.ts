/**
 * Prices keep the digits of their source: a JSON number is read as text, and only its exponent is expanded. `Number` is
 * used for ratios, never for published prices.
 */

/** A number of a JSON document, as written. */
export class JsonNumber {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** As `JSON.parse`, with every number as a JsonNumber. @throws SyntaxError */
export function parseJsonExactly(text: string): unknown {
  const keepText = (_key: string, value: unknown, context?: { source?: string }): unknown =>
    typeof value === 'number' ? new JsonNumber(context?.source ?? String(value)) : value;
  return JSON.parse(text, keepText);
}

const NUMBER = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,4}))?$/;

/** Up to a quadrillion dollars. */
const INTEGER_DIGITS = 15;
/** The 17 digits of a double at a price of 10^-24. */
const FRACTION_DIGITS = 41;

/**
 * Writes a positive number without exponent and redundant zeros. `null` when the text is not a positive number, or has
 * more digits than a price can have.
 */
export function positiveDecimal(text: string): string | null {
  const decimal = plainDecimal(text);
  return decimal === null || decimal === '0' ? null : decimal;
}

/** As `positiveDecimal`, also for 0. */
export function plainDecimal(text: string): string | null {
  const parts = text.length > 200 ? null : NUMBER.exec(text);
  if (parts === null) return null;
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = parts;
  const digits = whole + fraction;
  if (/^0*$/.test(digits)) return '0';
  if (sign !== '') return null;
  /** Position of the decimal point in `digits`, may lie outside of them. */
  const point = whole.length + Number(exponent);
  if (Math.abs(point) > 400) return null;
  const left = (point > 0 ? digits.slice(0, point).padEnd(point, '0') : '').replace(/^0+/, '');
  const right = (point < 0 ? '0'.repeat(-point) + digits : digits.slice(point)).replace(/0+$/, '');
  if (left.length > INTEGER_DIGITS || right.length > FRACTION_DIGITS) return null;
  return `${left === '' ? '0' : left}${right === '' ? '' : `.${right}`}`;
}

/** The ratio of two positive decimals, larger to smaller. */
export function factorBetween(one: string, other: string): number {
  const ratio = Number(one) / Number(other);
  return ratio < 1 ? 1 / ratio : ratio;
}
