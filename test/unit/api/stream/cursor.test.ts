import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { digestOf } from '../../../../api/http/cursor-digest.ts';
import { endCursor, decodeCursor, encodeCursor } from '../../../../api/stream/cursor.ts';
import type { MessageType, StreamPosition } from '../../../../api/stream/cursor.ts';
import { FELT_PRIME, toFelt } from '../../../../schemas/felt.ts';

const height = fc.integer({ min: 0, max: 0xffff_fffd });
const hash = fc.bigInt({ min: 1n, max: FELT_PRIME - 1n }).map(toFelt);
const final = fc.option(height);
const place = fc.record({
  position: fc.integer({ min: 0, max: 0xffff_fffe }),
  item: fc.integer({ min: 0, max: 0xffff_ffff }),
});
const positions: fc.Arbitrary<StreamPosition> = fc.oneof(
  fc.record({ last: fc.constant(null), within: fc.constant(null), next: height, final, floor: height }),
  fc
    .record({ height, hash, within: fc.option(place), final, floor: height })
    .map(({ within, final: f, floor, ...last }) => ({
      last,
      within,
      next: within === null ? last.height + 1 : last.height,
      final: f,
      floor,
    })),
);
const type = fc.constantFrom<MessageType>('transfer', 'block', 'undo', 'final', 'end');
const mark = fc.maxSafeNat();
const filters = digestOf('filters');

describe('a cursor of a stream', () => {
  it('decodes to the position that was encoded', () => {
    fc.assert(
      fc.property(positions, type, mark, (position, of, marked) => {
        expect(decodeCursor(encodeCursor(position, filters, of, marked), filters)).toEqual(position);
      }),
    );
  });

  it('of another message has the same position, and differs', () => {
    fc.assert(
      fc.property(positions, type, mark, (position, of, marked) => {
        const cursor = encodeCursor(position, filters, of, marked);
        const end = endCursor(cursor);
        expect(decodeCursor(end, filters)).toEqual(position);
        expect(end === cursor).toBe(of === 'end');
      }),
    );
  });

  it('is refused with other filters', () => {
    fc.assert(
      fc.property(positions, type, (position, of) => {
        expect(decodeCursor(encodeCursor(position, filters, of, 0), digestOf('others'))).toBeNull();
      }),
    );
  });

  it('differs by position, type and mark', () => {
    const cursor = fc.tuple(positions, type, mark);
    fc.assert(
      fc.property(cursor, cursor, (a, b) => {
        const isSame = JSON.stringify(a) === JSON.stringify(b);
        const [x, y] = [a, b].map(([position, of, marked]) => encodeCursor(position, filters, of, marked));
        expect(x === y).toBe(isSame);
      }),
    );
  });

  it('of the version before, which had no floor, is still good', () => {
    // Made by that version: transfer 3.0 of block 7, whose hash is 0xb10c, newest final 5.
    const cursor = 'AQEAAAAAAAAAAAAAAAUAAAAHAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAsQwAAAADAAAAAAAAAAAAAAAA';
    expect(decodeCursor(cursor, Buffer.alloc(8))).toEqual({
      last: { height: 7, hash: toFelt(0xb10cn) },
      within: { position: 3, item: 0 },
      next: 7,
      final: 5,
      floor: 0,
    });
  });

  it('refuses any other text', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.base64String({ minLength: 88, maxLength: 96 })), (text) => {
        expect(decodeCursor(text, filters)).toBeNull();
      }),
    );
  });
});
