import { describe, expect, it } from 'vitest';
import { z } from 'zod';

import { HttpError } from '../../../../api/http/errors.ts';
import {
  address,
  boolean,
  integer,
  limit,
  page,
  parseTimestamp,
  text,
  timestamp,
  tokenId,
} from '../../../../api/http/params.ts';
import { readQuery } from '../../../../api/http/handle-route.ts';
import { parseInput } from '../../../../api/http/validation.ts';

/** The value that `x` is parsed to, or the messages it is refused with. */
function parsed(schema: z.ZodType, x: string | undefined): unknown {
  try {
    return parseInput(z.object({ x: schema }), x === undefined ? {} : { x }).x;
  } catch (error) {
    if (!(error instanceof HttpError)) throw error;
    expect(error.status).toBe(400);
    return error.errors?.['x'];
  }
}

const padded = (digits: string): string => `0x${digits.padStart(64, '0')}`;

describe('address', () => {
  it.each([
    ['0x1', padded('1')],
    ['0X1', padded('1')],
    ['0xAbC', padded('abc')],
    [padded('49d3'), padded('49d3')],
    ['0x0', padded('0')],
    // The field's prime is 2^251 + 17 · 2^192 + 1: one less is the largest felt.
    [
      '0x800000000000011000000000000000000000000000000000000000000000000',
      padded('800000000000011000000000000000000000000000000000000000000000000'),
    ],
  ])('%s is %s', (sent, canonical) => {
    expect(parsed(address(), sent)).toBe(canonical);
  });

  it.each([
    '0x',
    '1234',
    'abc',
    '0xg',
    ' 0x1',
    '0x1 ',
    '0x-1',
    '0x1\0',
    `0x${'1'.repeat(65)}`,
    `0x${'f'.repeat(64)}`,
    '0x800000000000011000000000000000000000000000000000000000000000001',
    "0x1' OR 1=1",
    '０x1',
  ])('%j is no address', (sent) => {
    expect(parsed(address(), sent)).toEqual(['Enter a valid address (0x and up to 64 hex digits).']);
  });

  it('is required unless optional', () => {
    expect(parsed(address(), undefined)).toEqual(['This field is required.']);
    expect(parsed(address().optional(), undefined)).toBeUndefined();
  });
});

describe('boolean', () => {
  it.each(['t', 'y', 'yes', 'true', 'on', '1', 'TRUE', 'Yes'])('%s is true', (sent) => {
    expect(parsed(boolean(), sent)).toBe(true);
  });
  it.each(['f', 'n', 'no', 'false', 'off', '0', 'FALSE', 'Off'])('%s is false', (sent) => {
    expect(parsed(boolean(), sent)).toBe(false);
  });
  it.each(['2', 'null', 'tru', 'ja', '\0'])('%j is neither', (sent) => {
    expect(parsed(boolean(), sent)).toEqual(['Must be a valid boolean.']);
  });
});

describe('integer', () => {
  const height = integer({ min: 0, max: 0xffff_fffe });
  it.each([
    ['0', 0],
    ['+7', 7],
    [' 7 ', 7],
    ['007', 7],
    ['4294967294', 0xffff_fffe],
  ])('%j is %d', (sent, value) => {
    expect(parsed(height, sent)).toBe(value);
  });
  it.each(['', '1.5', '1e3', '0x10', 'one', '1_000', '--1', '٣', 'NaN', 'Infinity'])(
    '%j is not an integer',
    (sent) => {
      expect(parsed(height, sent)).toEqual(['A valid integer is required.']);
    },
  );
  it('has bounds, also for huge numbers', () => {
    expect(parsed(height, '-1')).toEqual(['Ensure this value is greater than or equal to 0.']);
    expect(parsed(height, '4294967295')).toEqual(['Ensure this value is less than or equal to 4294967294.']);
    expect(parsed(height, '9'.repeat(900))).toEqual([
      'Ensure this value is less than or equal to 4294967294.',
    ]);
    expect(parsed(height, '9'.repeat(5000))).toEqual(['A valid integer is required.']);
  });
});

describe('tokenId', () => {
  const max = 2n ** 256n - 1n;
  it.each([
    ['0', 0n],
    ['0xff', 255n],
    ['0XFF', 255n],
    [max.toString(), max],
    [`0x${'f'.repeat(64)}`, max],
  ])('%s is %s', (sent, value) => {
    expect(parsed(tokenId(), sent)).toBe(value);
  });
  it.each(['-1', '1.0', (max + 1n).toString(), '9'.repeat(100), '0x', 'x', ' 1'])(
    '%j is not an integer',
    (sent) => {
      expect(parsed(tokenId(), sent)).toEqual(['Enter a valid token id.']);
    },
  );
});

describe('timestamp', () => {
  it.each([
    ['2026-01-02T03:04:05Z', '2026-01-02T03:04:05.000Z'],
    ['2026-01-02t03:04:05z', '2026-01-02T03:04:05.000Z'],
    ['2026-01-02T03:04:05', '2026-01-02T03:04:05.000Z'],
    ['2026-01-02 03:04', '2026-01-02T03:04:00.000Z'],
    ['2026-01-02', '2026-01-02T00:00:00.000Z'],
    ['2026-01-02T03:04:05.678901Z', '2026-01-02T03:04:05.678Z'],
    ['2026-01-02T03:04:05.999999999Z', '2026-01-02T03:04:05.999Z'],
    ['2026-01-02T03:04:05.001Z', '2026-01-02T03:04:05.001Z'],
    ['2026-01-02T03:04:05+02:30', '2026-01-02T00:34:05.000Z'],
    ['2026-01-02T03:04:05 02:30', '2026-01-02T00:34:05.000Z'],
    ['2026-01-02T03:04:05-0230', '2026-01-02T05:34:05.000Z'],
    ['2026-01-02T03:04:05+02', '2026-01-02T01:04:05.000Z'],
    ['2024-02-29T00:00:00Z', '2024-02-29T00:00:00.000Z'],
    ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z'],
    ['9999-12-31T23:59:59Z', '9999-12-31T23:59:59.000Z'],
  ])('%s is %s', (sent, utc) => {
    expect(parseTimestamp(sent)?.toISOString()).toBe(utc);
  });

  it.each([
    '',
    'now',
    '1767323045',
    '2026-13-01T00:00:00Z',
    '2026-02-30T00:00:00Z',
    '2025-02-29T00:00:00Z',
    '2026-01-02T24:00:00Z',
    '2026-01-02T23:60:00Z',
    '2026-01-02T23:59:60Z',
    '2026-01-02T03:04:05+25:00',
    '0000-01-01T00:00:00Z',
    // In UTC these are of the years 0 and 10000, which have no ISO 8601 form of four digits.
    '0001-01-01T00:00:00+00:01',
    '9999-12-31T23:59:59-00:01',
    '+012026-01-01T00:00:00Z',
    '2026-01-02T03:04:05Z\0',
    '2026-01-02T03:04:05ZZ',
    '20260102T030405Z',
  ])('%j is not an integer', (sent) => {
    expect(parseTimestamp(sent)).toBeNull();
    expect(parsed(timestamp(), sent)).toEqual([expect.stringContaining('Datetime has wrong format.')]);
  });
});

describe('page and limit', () => {
  it.each([
    [undefined, 1],
    ['1', 1],
    ['17', 17],
    ['+2', 2],
    [' 2', 2],
    ['last', 'last'],
    ['0', 'invalid'],
    ['-1', 'invalid'],
    ['1.5', 'invalid'],
    ['Last', 'invalid'],
    ['x', 'invalid'],
    ['9'.repeat(40), 'invalid'],
    ['1\0', 'invalid'],
  ])('page %j is %s', (sent, value) => {
    expect(parsed(page(), sent)).toBe(value);
  });

  it.each([
    [undefined, 25],
    ['1', 1],
    ['100', 100],
    ['101', 100],
    ['9'.repeat(400), 100],
    ['0', 25],
    ['00', 25],
    ['-5', 25],
    ['x', 25],
    ['1.5', 25],
  ])('limit %j is %d', (sent, value) => {
    expect(parsed(limit(), sent)).toBe(value);
  });
});

describe('text', () => {
  it('rejects text that PostgreSQL cannot store or that is too long', () => {
    expect(parsed(text(), 'a\0b')).toEqual(['Null characters are not allowed.']);
    expect(parsed(text({ max: 3 }), 'abcd')).toEqual(['Ensure this field has no more than 3 characters.']);
    expect(parsed(text({ min: 2 }), 'a')).toEqual(['Ensure this field has at least 2 characters.']);
    expect(parsed(text(), 'Ünïcode 🦊')).toBe('Ünïcode 🦊');
  });
});

describe('readQuery', () => {
  it('takes the last of several parameters with one name, and an empty one as absent', () => {
    expect(readQuery('a=1&b=2&a=3&c=&d&e=%20')).toEqual({ a: '3', b: '2', e: ' ' });
    expect(readQuery('a=1&a=')).toEqual({});
    expect(readQuery('%ff=%ff&a=%zz')).toEqual({ '\ufffd': '\ufffd', a: '%zz' });
    expect(Object.keys(readQuery('__proto__=1'))).toEqual(['__proto__']);
  });
});

describe('parseInput', () => {
  it('reports the same error of a field once', () => {
    const largest = Number.MAX_SAFE_INTEGER;
    const message = `Ensure this value is less than or equal to ${largest}.`;
    let errors: unknown;
    try {
      parseInput(z.object({ x: z.int().max(largest) }), { x: 1e300 });
    } catch (error) {
      if (error instanceof HttpError) ({ errors } = error);
    }
    expect(errors).toEqual({ x: [message] });
  });
});
