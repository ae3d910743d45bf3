import { describe, expect, test } from 'vitest';

import { decodeHoldersCursor, encodeHoldersCursor } from '../../../../api/analytics/holders-cursor.ts';
import { FELT_PRIME, toFelt } from '../../../../schemas/felt.ts';

const first = { after: { account: toFelt(1n), balance: 1n }, rank: 1 };
const cursors = [
  first,
  { after: { account: toFelt(FELT_PRIME - 1n), balance: (1n << 256n) - 1n }, rank: 2 ** 40 },
];

describe('the cursor of holders', () => {
  test.each(cursors)('is read as it was written', (cursor) => {
    expect(decodeHoldersCursor(encodeHoldersCursor(cursor, 'a'), 'a')).toEqual(cursor);
  });

  test('is rejected for another query, when cut or lengthened, and where it holds no address', () => {
    const text = encodeHoldersCursor(first, 'a');
    expect(decodeHoldersCursor(text, 'b')).toBeNull();
    for (const wrong of ['', text.slice(1), `${text}AA`, text.replace(/^./, 'B'), 'x'.repeat(106)]) {
      expect(decodeHoldersCursor(wrong, 'a'), wrong).toBeNull();
    }
    const bytes = Buffer.from(text, 'base64url');
    bytes.fill(0xff, 39, 71);
    expect(decodeHoldersCursor(bytes.toString('base64url'), 'a')).toBeNull();
  });
});
