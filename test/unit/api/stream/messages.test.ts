import { expect, it } from 'vitest';

import type { StreamedBlock, StreamedTransfer } from '../../../../api/stream/blocks.ts';
import type { StreamPosition } from '../../../../api/stream/cursor.ts';
import { sharedMessagesOf } from '../../../../api/stream/messages.ts';
import type { TailView } from '../../../../api/stream/tail.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const TRANSFERS = 11_000;

/** A view that holds one block. */
function viewOf(transfers: number): { view: TailView; held: readonly StreamedBlock[] } {
  const hash = toFelt(1n);
  const block = { height: 1, hash, parent: toFelt(0n), timestamp: 1, transfers, seq: 1 };
  const whole = {
    block,
    transfers: Array.from({ length: transfers }, (_, position) => {
      const row = { token: hash, from: hash, to: hash, position, item: 0 };
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- of which no more is read
      return { row, json: () => '{}' } as unknown as StreamedTransfer;
    }),
  };
  return { view: { version: 1, l1Height: null, first: 0, blocks: [{ block, whole }] }, held: [whole] };
}

it('shares messages of a view up to a bound, however many positions clients make up', () => {
  const { view, held } = viewOf(TRANSFERS);
  const digest = Buffer.alloc(8);
  const messages = (position: number) => {
    const within = { position, item: 0 };
    const start: StreamPosition = {
      last: { height: 1, hash: toFelt(1n) },
      within,
      next: 1,
      final: null,
      floor: 0,
    };
    return sharedMessagesOf(start, { view, held, filter: {} }, digest);
  };
  const first = messages(0);
  expect(first.messages).toHaveLength(TRANSFERS);
  expect(messages(0)).toBe(first);

  const isShared = (position: number): boolean => messages(position) === messages(position);
  const shared = Array.from({ length: 20 }, (_, position) => isShared(position)).filter(Boolean);
  // Not more than 40,000 messages.
  expect(shared).toHaveLength(3);
  expect(messages(0)).toBe(first);
  expect(messages(19)).toEqual(messages(19));
  // Those that are few.
  expect(isShared(TRANSFERS - 2)).toBe(true);
});
