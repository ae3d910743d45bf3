import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { byValue, createTotals, holdingOf } from '../../../../api/portfolio/holdings.ts';
import type { Held, Holding } from '../../../../api/portfolio/holdings.ts';
import { compareDecimals, createSum, decimalText } from '../../../../schemas/money.ts';
import type { Decimal } from '../../../../schemas/money.ts';
import type { TokenRow } from '../../../../projections/tokens/queries.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import type { TokenStandard } from '../../../../schemas/messages/common.ts';

const tokenRow = (decimals: number | null, standard: TokenStandard = 'erc20'): TokenRow => ({
  token: toFelt(1n),
  standard,
  class_hash: null,
  name: null,
  symbol: null,
  decimals,
  first_block: null,
  described_at: null,
  verified: false,
  common: false,
  public: false,
  hidden: false,
  logo: null,
  listed_at: null,
});
const held = (address: bigint, balance: bigint, token: TokenRow | undefined = tokenRow(0)): Held => ({
  address: toFelt(address),
  token,
  balance,
});
const priced = (of: readonly Held[], prices: Record<string, string>) => {
  const known = new Map(Object.entries(prices).map(([address, price]) => [toFelt(BigInt(address)), price]));
  return of.map((one) => holdingOf(one, known));
};

const totalsOf = (holdings: readonly Holding[]) => {
  const totals = createTotals();
  for (const { value } of holdings) totals.add(value?.usd ?? null);
  return totals.figures();
};

describe('a portfolio', () => {
  it('sums priced holdings exactly, and counts those without a price', () => {
    const holdings = priced(
      [
        held(1n, 1n, tokenRow(1)),
        held(2n, 2n, tokenRow(1)),
        held(3n, 10n ** 18n, undefined),
        held(4n, 7n, tokenRow(null, 'erc721')),
        held(5n, 10n ** 25n, tokenRow(null)),
      ],
      { 1: '1', 2: '1', 5: '0.00000001' },
    );
    // As floats 0.1 + 0.2 is more than 0.3.
    expect(totalsOf(holdings)).toEqual({
      total_usd: 0.4,
      tracked_total_usd: 0.4,
      holdings_count: 5,
      untracked_count: 2,
    });
    expect(totalsOf([])).toEqual({
      total_usd: 0,
      tracked_total_usd: 0,
      holdings_count: 0,
      untracked_count: 0,
    });
  });

  it('orders by value, then holdings without a price by address', () => {
    const holdings = priced(
      [
        held(9n, 1n),
        held(1n, 10n ** 15n, tokenRow(18)),
        held(2n, 1n, tokenRow(1)),
        held(3n, 3n),
        held(8n, 1n),
        held(4n, 3n),
        held(5n, 1n),
      ],
      { 1: '200', 2: '4', 4: '9007199254740993', 5: '27021597764222978.5', 3: 'free' },
    );
    expect(holdings.toSorted(byValue).map(({ address }) => BigInt(address))).toEqual([
      4n,
      5n,
      2n,
      1n,
      3n,
      8n,
      9n,
    ]);
  });
});

describe('exact numbers', () => {
  const decimal = fc.record({
    digits: fc.bigInt({ min: 0n, max: 10n ** 30n }),
    places: fc.integer({ min: 0, max: 30 }),
  });
  /** In units of ten to the power of −30. */
  const units = ({ digits, places }: Decimal): bigint => digits * 10n ** BigInt(30 - places);

  it('add and compare like integers of one unit', () => {
    fc.assert(
      fc.property(fc.array(decimal), decimal, decimal, (list, one, other) => {
        const added = createSum();
        for (const each of list) added.add(each);
        const sum = added.total();
        expect(sum.digits * 10n ** BigInt(30 - sum.places)).toBe(
          list.reduce((total, each) => total + units(each), 0n),
        );
        const order = units(one) < units(other) ? -1 : units(one) > units(other) ? 1 : 0;
        expect(compareDecimals(one, other)).toBe(order);
        const [whole = '', fraction = ''] = decimalText(one).split('.');
        expect(BigInt(whole + fraction.padEnd(30, '0'))).toBe(units(one));
        expect(fraction.endsWith('0')).toBe(false);
      }),
    );
  });
});
