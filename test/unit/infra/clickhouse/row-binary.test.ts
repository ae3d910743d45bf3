import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { createRowEncoder, encodeRows } from '../../../../infra/clickhouse/row-binary.ts';
import type { ColumnSpec, ColumnType, SpareBuffers } from '../../../../infra/clickhouse/row-binary.ts';

const one = (type: ColumnType, cell: unknown): string =>
  encodeRows([{ name: 'c', type }], [{ c: cell as never }]).toString('hex');

/** Two's complement, 32 bytes, least significant byte first: written out apart from the encoder. */
function littleEndian256(value: bigint): string {
  let rest = value < 0n ? value + 2n ** 256n : value;
  let hex = '';
  for (let i = 0; i < 32; i += 1) {
    hex += (rest % 256n).toString(16).padStart(2, '0');
    rest /= 256n;
  }
  return hex;
}

describe('RowBinary, as ClickHouse documents it', () => {
  test.each([
    ['UInt8', 255, 'ff'],
    ['UInt16', 258, '0201'],
    ['UInt32', 4_294_967_295, 'ffffffff'],
    ['DateTime', 1_685_168_481, '61a17164'],
    ['UInt64', 1_763_887_048_000, '4065dcaf9a010000'],
    ['UInt64', 18_446_744_073_709_551_615n, 'ffffffffffffffff'],
    ['UInt64', Number.MAX_SAFE_INTEGER, 'ffffffffffff1f00'],
    ['UInt64', 4_294_967_295, 'ffffffff00000000'],
    ['UInt64', 1n, '0100000000000000'],
    ['String', '', '00'],
    ['String', 'é', '02c3a9'],
    ['String', 'ab\u0080', '046162c280'],
    ['String', 'x'.repeat(32), `20${'78'.repeat(32)}`],
    ['String', 'x'.repeat(33), `21${'78'.repeat(33)}`],
    ['LowCardinality(String)', 'ab', '026162'],
    ['LowCardinality(String)', 'x'.repeat(300), `ac02${'78'.repeat(300)}`],
    ['Array(UInt32)', [1, 2], '020100000002000000'],
    ['FixedString(32)', `0x${'0'.repeat(62)}1f`, `${'00'.repeat(31)}1f`],
    ['Array(FixedString(32))', [`0x0${'a'.repeat(63)}`], `010a${'aa'.repeat(31)}`],
  ] as const)('%s %s', (type, cell, hex) => {
    expect(one(type, cell)).toBe(hex);
  });

  test('a string longer than 127 bytes has its length as a varint, and the buffer grows', () => {
    const text = 'x'.repeat(3_000_000);
    const bytes = encodeRows([{ name: 'c', type: 'String' }], [{ c: text }]);
    expect(bytes.subarray(0, 4).toString('hex')).toBe('c08db701');
    expect(bytes.subarray(4).toString()).toBe(text);
  });

  test('every text of few or many is written as its own bytes, also again', () => {
    const texts = Array.from({ length: 3000 }, (_, n) => `é${n}`);
    const rows = [...texts, ...texts.toReversed(), ''].map((c) => ({ c }));
    const written = (type: ColumnType): string => encodeRows([{ name: 'c', type }], rows).toString('hex');
    const apart = rows.map(
      ({ c }) => `${Buffer.from([Buffer.byteLength(c)]).toString('hex')}${Buffer.from(c).toString('hex')}`,
    );
    expect(written('LowCardinality(String)')).toBe(apart.join(''));
    expect(written('String')).toBe(apart.join(''));
  });

  test('every felt is written as its own bytes, also after thousands of others and again', () => {
    const felt = (n: number): string => `0x${n.toString(16).padStart(64, '0')}`;
    const numbers = Array.from({ length: 20_000 }, (_, n) => n);
    const rows = [...numbers, ...numbers.toReversed(), 0, 0].map((n) => ({ c: felt(n) }));
    const bytes = encodeRows([{ name: 'c', type: 'FixedString(32)' }], rows);
    expect(bytes.toString('hex')).toBe(rows.map(({ c }) => c.slice(2)).join(''));
  });

  test('256-bit numbers, signed and not, are two’s complement', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 256n - 1n }), (value) => {
        expect(one('UInt256', value)).toBe(littleEndian256(value));
      }),
    );
    fc.assert(
      fc.property(fc.bigInt({ min: -(2n ** 255n), max: 2n ** 255n - 1n }), (value) => {
        expect(one('Int256', value)).toBe(littleEndian256(value));
      }),
    );
    expect(one('Int256', -1n)).toBe('ff'.repeat(32));
    expect(one('UInt256', 2n ** 64n)).toBe(`${'00'.repeat(8)}01${'00'.repeat(23)}`);
  });
});

describe('nothing is cut to fit', () => {
  test.each([
    ['UInt8', 256],
    ['UInt8', -1],
    ['UInt16', 1.5],
    ['UInt32', 4_294_967_296],
    ['UInt32', '1'],
    ['UInt64', -1n],
    ['UInt64', 2n ** 64n],
    ['UInt64', 2 ** 53],
    ['UInt64', -1],
    ['UInt64', 0.5],
    ['UInt256', -1n],
    ['UInt256', 2n ** 256n],
    ['UInt256', 1],
    ['Int256', 2n ** 255n],
    ['Int256', -(2n ** 255n) - 1n],
    ['String', 1],
    ['FixedString(32)', '0x1'],
    ['FixedString(32)', `0x${'g'.repeat(64)}`],
    ['FixedString(32)', `0x${'0'.repeat(63)}g`],
    ['FixedString(32)', `0x${'0'.repeat(62)}g0`],
    ['Array(UInt32)', 1],
  ] as const)('%s refuses %s', (type, cell) => {
    expect(() => one(type, cell)).toThrow(TypeError);
  });

  test('a refused felt is refused again, and leaves nothing in the next one', () => {
    const wrong = `0x${'f'.repeat(62)}g0`;
    expect(() => one('FixedString(32)', wrong)).toThrow(TypeError);
    expect(one('FixedString(32)', `0x${'0'.repeat(61)}abc`)).toBe(`${'0'.repeat(61)}abc`);
    expect(() => one('FixedString(32)', wrong)).toThrow(TypeError);
  });

  test('a missing column is refused', () => {
    expect(() => encodeRows([{ name: 'c', type: 'UInt8' }], [{}])).toThrow(/lacks column c/);
  });
});

describe('buffers that are used again', () => {
  const columns: ColumnSpec[] = [{ name: 'c', type: 'String' }];
  const rowsOf = (sizes: readonly number[], letter: string) =>
    sizes.map((size) => ({ c: letter.repeat(size) }));

  test('hold the rows of each encoder until they are released', () => {
    const batch = fc.record({
      sizes: fc.array(fc.oneof(fc.nat(50), fc.integer({ min: 10_000, max: 70_000 })), { maxLength: 5 }),
      heldAfterwards: fc.nat(3),
    });
    const isUsedAgain = { ever: false };
    fc.assert(
      fc.property(fc.array(batch, { maxLength: 12 }), (batches) => {
        const spare: SpareBuffers = [];
        const held: (() => void)[] = [];
        const check: Set<() => void> = new Set();
        for (const [index, { sizes, heldAfterwards }] of batches.entries()) {
          const rows = rowsOf(sizes, String.fromCodePoint(97 + index));
          const encoder = createRowEncoder(columns, spare);
          const before = new Set(spare.map(({ buffer }) => buffer));
          encoder.add(rows);
          const bytes = encoder.take();
          isUsedAgain.ever ||= before.has(bytes.buffer as ArrayBuffer);
          const isWhole = (): void => expect(bytes.equals(encodeRows(columns, rows))).toBe(true);
          check.add(isWhole);
          held.push(() => {
            check.delete(isWhole);
            encoder.release(bytes);
          });
          for (const run of check) run();
          for (const release of held.splice(0, Math.max(0, held.length - heldAfterwards))) release();
        }
      }),
    );
    expect(isUsedAgain.ever).toBe(true);
  });

  test('are given up once little of them is used', () => {
    const spare: SpareBuffers = [];
    const used = (size: number): number | undefined => {
      const encoder = createRowEncoder(columns, spare);
      encoder.add(rowsOf([size], 'a'));
      encoder.release(encoder.take());
      return spare[0]?.length;
    };
    const large = used(1_000_000);
    expect(large).toBeGreaterThanOrEqual(1_000_000);
    expect(used(200_000)).toBe(large);
    expect(used(100)).toBeUndefined();
  });
});
