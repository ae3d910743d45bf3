/** A raw integer as an exact amount of whole tokens: `formatAmount(1_500_000n, 6)` is `1.5`. */
export function formatAmount(amount: bigint, decimals: number): string {
  const sign = amount < 0n ? '-' : '';
  const digits = (amount < 0n ? -amount : amount).toString().padStart(decimals + 1, '0');
  const fraction = decimals === 0 ? '' : digits.slice(-decimals).replace(/0+$/, '');
  return `${sign}${digits.slice(0, digits.length - decimals)}${fraction === '' ? '' : `.${fraction}`}`;
}

/**
 * The raw integer of an amount: `parseAmount('1.5', 6)` is `1_500_000n`.
 *
 * @throws RangeError if the text is no decimal number, or has more decimals
 */
export function parseAmount(text: string, decimals: number): bigint {
  const [, sign = '', whole = '', fraction = ''] = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text) ?? [];
  if (whole === '' || fraction.length > decimals)
    throw new RangeError(`no amount with ${decimals} decimals: ${text}`);
  const amount = BigInt(whole + fraction.padEnd(decimals, '0'));
  return sign === '' ? amount : -amount;
}
