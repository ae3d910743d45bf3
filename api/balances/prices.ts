import type { Felt } from '../../schemas/felt.ts';
import type { ServedBuilds } from '../route.ts';

/** What a token is worth in USD, as decimal strings; where nothing is known, none is given. */
export interface PriceReader {
  /** Of these tokens now; those without a price are missing. */
  now(served: ServedBuilds, tokens: readonly Felt[]): Promise<ReadonlyMap<Felt, string>>;
  /** Of one token at these times (unix seconds, descending), in their order. */
  at(served: ServedBuilds, token: Felt, times: readonly number[]): Promise<readonly (string | null)[]>;
}

/** Without a price feed no token has a price. */
export const noPrices: PriceReader = {
  now: async () => new Map(),
  at: async (_, __, times) => times.map(() => null),
};

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
