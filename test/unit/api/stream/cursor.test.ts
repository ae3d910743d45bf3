import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { cursorOfType, decodeCursor, digestOf, encodeCursor } from '../../../../api/stream/cursor.ts';
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
  fc.record({ last: fc.constant(null), within: fc.constant(null), next: height, final }),
  fc.record({ height, hash, within: fc.option(place), final }).map(({ within, final: f, ...last }) => ({
    last,
    within,
    next: within === null ? last.height + 1 : last.height,
    final: f,
  })),
);
const type = fc.constantFrom<MessageType>('transfer', 'block', 'undo', 'final', 'end');
const filters = digestOf('filters');

describe('a cursor of a stream', () => {
  it('decodes to the position that was encoded', () => {
    fc.assert(
      fc.property(positions, type, fc.string(), (position, of, mark) => {
        expect(decodeCursor(encodeCursor(position, filters, of, mark), filters)).toEqual(position);
      }),
    );
  });

  it('of another message has the same position, and differs', () => {
    fc.assert(
      fc.property(positions, type, fc.string(), (position, of, mark) => {
        const cursor = encodeCursor(position, filters, of, mark);
        const end = cursorOfType(cursor, 'end');
        expect(decodeCursor(end, filters)).toEqual(position);
        expect(end === cursor).toBe(of === 'end');
      }),
    );
  });

  it('is refused with other filters', () => {
    fc.assert(
      fc.property(positions, type, (position, of) => {
        expect(decodeCursor(encodeCursor(position, filters, of), digestOf('others'))).toBeNull();
      }),
    );
  });

  it('differs by position, type and mark', () => {
    const cursor = fc.tuple(positions, type, fc.string());
    fc.assert(
      fc.property(cursor, cursor, (a, b) => {
        const isSame = JSON.stringify(a) === JSON.stringify(b);
        const [x, y] = [a, b].map(([position, of, mark]) => encodeCursor(position, filters, of, mark));
        expect(x === y).toBe(isSame);
      }),
    );
  });

  it('refuses any other text', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.base64String({ minLength: 88, maxLength: 88 })), (text) => {
        expect(decodeCursor(text, filters)).toBeNull();
      }),
    );
  });
});
