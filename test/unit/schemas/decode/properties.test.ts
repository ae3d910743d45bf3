import fc from 'fast-check';
import { expect, test } from 'vitest';

import { decodeBlock, tokenContracts } from '../../../../schemas/decode/index.ts';
import type { Felt } from '../../../../schemas/felt.ts';
import type { RawEvent } from '../../../../schemas/messages/chain-blocks.ts';
import { tokenStandards } from '../../../../schemas/messages/common.ts';
import { APPROVAL, BATCH, SINGLE, TOKEN, TRANSFER, block, contract, felt, transaction } from './builders.ts';

/*
 * An independent encoder: all layouts of an event have the same words, split between keys and data at different points:
 * Transfer [from, to, …number], ERC-1155 [operator, from, to, …].
 */

const HALF = 1n << 128n;
const PRIME = 2n ** 251n + 17n * 2n ** 192n + 1n;
const selectors = [TRANSFER, SINGLE, BATCH].map(felt);

const halves = (value: bigint) => [value % HALF, value / HALF];

/** How the number of an event is encoded, and how many of its words may be keys. */
const encodings = {
  transfer: [
    { write: halves, keyed: [0, 2, 4] },
    { write: (value: bigint) => [value], keyed: [0, 2, 3] },
  ],
  single: [
    { write: halves, keyed: [0, 3] },
    { write: (value: bigint) => [value], keyed: [3] },
  ],
  batch: [{ write: halves, keyed: [0, 3] }],
};

const number = (bound: bigint) =>
  fc.oneof(
    fc.constantFrom(...[0n, 1n, HALF - 1n, HALF, bound - 1n].filter((value) => value < bound)),
    fc.bigInt({ min: 0n, max: bound - 1n }),
  );
const word = number(PRIME);
const address = word.filter((value) => !selectors.includes(felt(value)));
const variant = fc.option(address, { nil: null });

function encode(
  selector: string,
  variantKey: bigint | null,
  words: readonly bigint[],
  keyed: number,
): RawEvent {
  const keys = [...(variantKey === null ? [] : [variantKey]), selector, ...words.slice(0, keyed)];
  return { from_address: TOKEN, keys: keys.map(felt), data: words.slice(keyed).map(felt) };
}

function cut(kind: keyof typeof encodings) {
  return fc.constantFrom(
    ...encodings[kind].flatMap(({ write, keyed }) => keyed.map((count) => ({ write, keyed: count }))),
  );
}

/** What one event comes to; the halves of a u256 hold any number, a felt only one below the prime. */
const semantic = fc.oneof(
  cut('transfer').chain(({ write, keyed }) =>
    fc
      .record({ variant, from: address, to: address, value: number(write === halves ? HALF * HALF : PRIME) })
      .map((t) => ({
        event: encode(TRANSFER, t.variant, [t.from, t.to, ...write(t.value)], keyed),
        from: t.from,
        to: t.to,
        items: null,
        value: t.value,
      })),
  ),
  cut('single').chain(({ write, keyed }) =>
    fc
      .record({
        variant,
        operator: address,
        from: address,
        to: address,
        id: number(write === halves ? HALF * HALF : PRIME),
        value: number(write === halves ? HALF * HALF : PRIME),
      })
      .map((t) => ({
        event: encode(
          SINGLE,
          t.variant,
          [t.operator, t.from, t.to, ...write(t.id), ...write(t.value)],
          keyed,
        ),
        from: t.from,
        to: t.to,
        items: [{ id: t.id, value: t.value }],
        value: 0n,
      })),
  ),
  cut('batch').chain(({ write, keyed }) =>
    fc
      .record({
        variant,
        operator: address,
        from: address,
        to: address,
        items: fc.array(fc.record({ id: number(HALF * HALF), value: number(HALF * HALF) }), {
          maxLength: 20,
        }),
      })
      .map((t) => {
        const count = BigInt(t.items.length);
        const ids = t.items.flatMap(({ id }) => write(id));
        const values = t.items.flatMap(({ value }) => write(value));
        const words = [t.operator, t.from, t.to, count, ...ids, count, ...values];
        return {
          event: encode(BATCH, t.variant, words, keyed),
          from: t.from,
          to: t.to,
          items: t.items,
          value: 0n,
        };
      }),
  ),
);

test('decoding reverses encoding in every layout', () => {
  fc.assert(
    fc.property(
      fc.array(semantic, { maxLength: 8 }),
      fc.constantFrom(...tokenStandards),
      (transfers, standard) => {
        const body = block([transaction(transfers.map(({ event }) => event))]);
        const expected = transfers.flatMap(({ from, to, items, value }, position) => {
          const common = { from: felt(from), to: felt(to), position };
          if (items !== null) {
            return items.map((entry, item) => ({
              ...common,
              item,
              kind: 'erc1155',
              tokenId: entry.id,
              amount: entry.value,
            }));
          }
          const meaning =
            standard === 'erc721'
              ? { kind: 'erc721', tokenId: value, amount: 1n }
              : { kind: standard === 'erc20' ? 'erc20' : 'unknown', tokenId: null, amount: value };
          return [{ ...common, item: 0, ...meaning }];
        });
        const decoded = decodeBlock(body, contract(standard));
        expect(decoded.malformed).toEqual([]);
        expect(
          decoded.transfers.map(({ from, to, position, item, kind, tokenId, amount }) => ({
            from,
            to,
            position,
            item,
            kind,
            tokenId,
            amount,
          })),
        ).toEqual(expected);
        expect(tokenContracts(body)).toEqual(transfers.length > 0 ? [TOKEN] : []);
      },
    ),
    { numRuns: 1000 },
  );
});

/** Felts at the edges of what the decoder accepts. */
const suspicious = fc.oneof(
  fc.constantFrom(...selectors, felt(APPROVAL)),
  fc.bigInt({ min: 0n, max: 6n }).map(felt),
  word.map(felt),
);
const garbage: fc.Arbitrary<RawEvent> = fc.record({
  from_address: fc.constant(TOKEN),
  keys: fc.array(suspicious, { maxLength: 9 }),
  data: fc.array(suspicious, { maxLength: 20 }),
});
/** A valid event with one defect: a felt removed, duplicated, replaced, or moved between keys and data. */
const spoilt: fc.Arbitrary<RawEvent> = fc
  .record({ good: semantic, at: fc.nat({ max: 30 }), with: suspicious, how: fc.nat({ max: 3 }) })
  .map(({ good: { event }, at, with: other, how }) => {
    const words = [...event.keys, ...event.data];
    const place = at % words.length;
    const move = how === 3 ? 1 : 0;
    if (how < 3) words.splice(place, how === 0 ? 1 : how - 1, ...(how === 0 ? [] : [other]));
    const keys = Math.min(event.keys.length + move, words.length);
    return { from_address: TOKEN, keys: words.slice(0, keys), data: words.slice(keys) };
  });

/** The numbers of a transfer as halves or felts, read from the words behind a selector; null where none can be there. */
function numbersBehind(selector: Felt, words: readonly Felt[]): bigint[] | null {
  const [transfer, single] = selectors;
  const head = selector === transfer ? 2 : 3;
  const values = words.slice(head).map((text) => BigInt(text));
  const join = (low = HALF, high = HALF) => (low < HALF && high < HALF ? low + high * HALF : -1n);
  if (words.length < head) return null;
  if (selector === transfer) {
    if (values.length === 0) return [0n];
    return values.length === 1 ? values : values.length === 2 ? [join(values[0], values[1])] : null;
  }
  if (selector === single) {
    if (values.length === 2) return values;
    return values.length === 4 ? [join(values[0], values[1]), join(values[2], values[3])] : null;
  }
  const count = (values.length - 2) / 4;
  if (!Number.isInteger(count) || values[0] !== BigInt(count) || values[1 + 2 * count] !== BigInt(count))
    return null;
  return Array.from({ length: count }, (_, n) => [1 + 2 * n, 2 + 2 * count + 2 * n])
    .flat()
    .map((at) => join(values[at], values[at + 1]));
}

test('random events never throw, and never yield a transfer that their words do not contain', () => {
  const seen = { transfers: 0, malformed: 0, foreign: 0 };
  fc.assert(
    fc.property(fc.oneof(garbage, spoilt), fc.constantFrom(...tokenStandards), (event, standard) => {
      const body = block([transaction([event])]);
      const { transfers, malformed } = decodeBlock(body, contract(standard));
      tokenContracts(body);
      const places = [0, 1].filter((index) => selectors.some((selector) => selector === event.keys[index]));
      const numbers = transfers.flatMap(({ kind, amount, tokenId }) =>
        kind === 'erc1155' ? [tokenId, amount] : [kind === 'erc721' ? tokenId : amount],
      );

      seen.transfers += transfers.length;
      seen.malformed += malformed.length;
      if (places.length === 0) {
        seen.foreign += 1;
        expect([transfers, malformed]).toEqual([[], []]);
        return;
      }
      expect(malformed.length > 0 && transfers.length > 0).toBe(false);
      if (malformed.length > 0) {
        expect(malformed[0]?.reason).not.toBe('');
        return;
      }
      const spelt = places.map((index) => {
        const words = [...event.keys.slice(index + 1), ...event.data];
        return numbersBehind(event.keys[index] ?? TOKEN, words);
      });
      expect(spelt).toContainEqual(numbers);
      expect(numbers.every((value) => value !== null && value >= 0n && value < HALF * HALF)).toBe(true);
    }),
    { numRuns: 5000 },
  );
  // the generators reach every outcome
  expect(Math.min(...Object.values(seen))).toBeGreaterThan(100);
});
