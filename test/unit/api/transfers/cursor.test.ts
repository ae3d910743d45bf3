import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { decodeCursor, encodeCursor } from '../../../../api/transfers/cursor.ts';
import type { TransferCursor } from '../../../../api/transfers/cursor.ts';

const uint32 = fc.integer({ min: 0, max: 0xffff_ffff });
const cursors: fc.Arbitrary<TransferCursor> = fc.record({
  after: fc.record({ block: uint32, position: uint32, item: uint32 }),
  carried: fc.option(
    fc.record({ count: fc.integer({ min: 0, max: 2 ** 48 - 1 }), isEstimate: fc.boolean() }),
  ),
});

describe('a cursor of transfers', () => {
  it('decodes to what was encoded, for the same search', () => {
    fc.assert(
      fc.property(cursors, fc.string(), (cursor, search) => {
        expect(decodeCursor(encodeCursor(cursor, search), search)).toEqual(cursor);
      }),
    );
  });

  it('is rejected for another search', () => {
    fc.assert(
      fc.property(cursors, fc.string(), fc.string(), (cursor, search, other) => {
        fc.pre(search !== other);
        expect(decodeCursor(encodeCursor(cursor, search), other)).toBeNull();
      }),
    );
  });

  it('needs no escaping in a URL', () => {
    fc.assert(
      fc.property(cursors, (cursor) => {
        const text = encodeCursor(cursor, 'w');
        expect(encodeURIComponent(text)).toBe(text);
      }),
    );
  });

  it('is rejected if malformed, without throwing', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.base64String(), fc.string({ unit: 'binary' })), (text) => {
        expect(decodeCursor(text, 'w')).toBeNull();
      }),
    );
  });

  it('is rejected if a byte of its frame is changed', () => {
    const valid = Buffer.from(
      encodeCursor({ after: { block: 9, position: 8, item: 7 }, carried: null }, 'w'),
      'base64url',
    );
    // Version, digest, kind of count, and a count that it says it has not.
    for (const at of [0, ...Array.from({ length: 8 }, (_, i) => 13 + i), 21, 27]) {
      const changed = Buffer.from(valid);
      changed[at] = (changed[at] ?? 0) ^ 0x83;
      expect(decodeCursor(changed.toString('base64url'), 'w'), `byte ${at}`).toBeNull();
    }
    for (const length of [0, 1, 27, 29, 56]) {
      expect(decodeCursor(Buffer.alloc(length, valid).toString('base64url'), 'w')).toBeNull();
    }
    // Spare bits after the last byte: another spelling of the same bytes.
    const text = valid.toString('base64url');
    expect(decodeCursor(`${text.slice(0, -1)}B`, 'w')).toBeNull();
  });
});
