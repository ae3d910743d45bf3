const DECIMAL = /^([0-9]+)(?:\.([0-9]+))?$/;

/** A raw amount at a price, exactly, as a decimal string without trailing zeros; null when the price is no decimal. */
export function worth(balance: bigint, decimals: number, price: string): string | null {
  const [, whole, fraction = ''] = DECIMAL.exec(price) ?? [];
  if (whole === undefined) return null;
  const places = decimals + fraction.length;
  const digits = (balance * BigInt(whole + fraction)).toString().padStart(places + 1, '0');
  const cut = digits.length - places;
  const rest = digits.slice(cut).replace(/0+$/, '');
  return rest === '' ? digits.slice(0, cut) : `${digits.slice(0, cut)}.${rest}`;
}
