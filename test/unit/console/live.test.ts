import { describe, expect, test } from 'vitest';

import type { StreamMessage } from '../../../client/src/stream.ts';
import {
  NOTHING,
  applyMessage,
  newerThan,
  streamStart,
  transferRate,
  withFinality,
} from '../../../console/src/live.ts';
import type { Live } from '../../../console/src/live.ts';

const block = (height: number, finality = 'ACCEPTED_ON_L2') => ({
  type: 'block',
  cursor: '',
  data: { height, hash: `0x${height}`, timestamp: new Date(height * 2000).toISOString(), finality },
});
const listed = (height: number, index: number, txhash = `0x${height}${index}`) => ({
  block: height,
  event_index: index,
  txhash,
});
const transfer = (height: number, index: number) => ({
  type: 'transfer',
  cursor: '',
  data: listed(height, index),
});
const undo = (top: number) => ({
  type: 'undo',
  cursor: '',
  data: { last_valid: { height: top, hash: `0x${top}` }, from: top + 1, to: top + 1, hashes: [] },
});
const final = (height: number) => ({ type: 'final', cursor: '', data: { height } });

const after = (messages: readonly object[]): Live =>
  messages.reduce<Live>((live, message) => applyMessage(live, message as StreamMessage), NOTHING);

test('the newest transfers and blocks come first, each block with its count', () => {
  const live = after([transfer(1, 0), transfer(1, 1), block(1), block(2), transfer(3, 0), block(3)]);
  expect(live.transfers.map(({ block: at, event_index }) => [at, event_index])).toEqual([
    [3, 0],
    [1, 1],
    [1, 0],
  ]);
  expect(live.blocks.map(({ height, transfers }) => [height, transfers])).toEqual([
    [3, 1],
    [2, 0],
    [1, 2],
  ]);
});

test('a block with more transfers than are kept has its whole count', () => {
  const many = Array.from({ length: 600 }, (_, i) => transfer(1, i));
  const live = after([...many, block(1)]);
  expect([live.blocks[0]?.transfers, live.transfers.length]).toEqual([600, 500]);
});

test('an undo drops the blocks above the last valid one, with their transfers', () => {
  const live = after([
    transfer(1, 0),
    block(1),
    transfer(2, 0),
    block(2),
    transfer(3, 0),
    undo(1),
    transfer(2, 9),
    block(2),
  ]);
  expect(live.transfers.map(({ block: at, event_index }) => [at, event_index])).toEqual([
    [2, 9],
    [1, 0],
  ]);
  expect(live.blocks.map(({ height, transfers }) => [height, transfers])).toEqual([
    [2, 1],
    [1, 1],
  ]);
});

describe('the transfers newer than a list', () => {
  const many = (height: number, length: number) => Array.from({ length }, (_, i) => transfer(height, i));
  const added = (messages: readonly object[], newest: ReturnType<typeof listed> | undefined) => {
    const { newer, isOutdated } = newerThan(after(messages), newest);
    return [newer.map(({ block: at, event_index }) => [at, event_index]), isOutdated];
  };
  // The second item of a batch has a higher index than a later event.
  const batch = [transfer(5, 0), transfer(5, 1_048_576), transfer(5, 1), transfer(5, 2)];

  test('follow the newest one listed in the order of the stream', () => {
    const messages = [...batch, block(5), transfer(6, 0), block(6)];
    expect(added(messages, listed(5, 1_048_576))).toEqual([
      [
        [6, 0],
        [5, 2],
        [5, 1],
      ],
      false,
    ]);
    expect(added(messages, listed(5, 2))).toEqual([[[6, 0]], false]);
  });

  test('are none before the newest one listed has arrived', () => {
    expect(added([], listed(5, 2))).toEqual([[], false]);
    expect(added([transfer(5, 0)], listed(5, 2))).toEqual([[], false]);
  });

  test('outdate the list when there are more than are kept', () => {
    const messages = [...batch, block(5)];
    const fits = newerThan(after([...messages, ...many(6, 499), block(6)]), listed(5, 2));
    expect([fits.newer.length, fits.isOutdated]).toEqual([499, false]);
    const more = newerThan(after([...messages, ...many(6, 500), block(6)]), listed(5, 2));
    expect([more.newer.length, more.isOutdated]).toEqual([500, true]);
  });

  test('outdate the list when its newest one is reverted', () => {
    const messages = [...batch, block(5), transfer(6, 0), block(6)];
    expect(added([...messages, undo(5)], listed(5, 2))).toEqual([[], false]);
    expect(added([...messages, undo(4)], listed(5, 2))).toEqual([[], true]);
    // Even if it is included again: those below it may not be.
    expect(added([...messages, undo(3), transfer(5, 2), block(5)], listed(5, 2))).toEqual([[], true]);
  });

  test('outdate the list when its newest block was replaced before the stream began', () => {
    expect(added([...batch, block(5)], listed(5, 2, '0xbad'))).toEqual([[], true]);
  });

  test('are all that is streamed where the newest one listed is too old to be streamed', () => {
    expect(streamStart(999_500, 1_000_000)).toBe(999_500);
    const start = streamStart(5, 1_000_000);
    expect(start).toBe(999_984);
    const streamed = (length: number) => after([block(start), ...many(start + 1, length), block(start + 1)]);
    const few = newerThan(streamed(3), listed(5, 0), start);
    expect([few.newer.length, few.isOutdated]).toEqual([3, false]);
    expect(newerThan(streamed(500), listed(5, 0), start).isOutdated).toBe(true);
  });

  test('outdate an empty list', () => {
    expect(added([block(5)], undefined)).toEqual([[], false]);
    expect(added([transfer(6, 0)], undefined)).toEqual([[[6, 0]], true]);
  });
});

test('the height accepted on L1 is that of a final message, or of a block that is sent as accepted', () => {
  expect(after([block(1), block(2)]).final).toBeNull();
  expect(after([block(1, 'ACCEPTED_ON_L1'), block(2)]).final).toBe(1);
  expect(after([block(1, 'ACCEPTED_ON_L1'), block(2), final(2), final(1)]).final).toBe(2);
});

test('the transfers up to the height accepted on L1 are accepted there', () => {
  const rows = [3, 2, 1].map((height) => ({ block: height, status: 'ACCEPTED_ON_L2' as const }));
  const states = (height: number | null) => withFinality(rows, height).map(({ status }) => status);
  expect(states(null)).toEqual(['ACCEPTED_ON_L2', 'ACCEPTED_ON_L2', 'ACCEPTED_ON_L2']);
  expect(states(2)).toEqual(['ACCEPTED_ON_L2', 'ACCEPTED_ON_L1', 'ACCEPTED_ON_L1']);
});

test('the rate is that of the blocks after the first', () => {
  expect(transferRate(after([transfer(1, 0), block(1)]).blocks)).toBeNull();
  // Six transfers in the four seconds between the blocks 1 and 3.
  const six = [...Array.from({ length: 6 }, (_, i) => transfer(2, i)), block(2), block(3)];
  expect(transferRate(after([transfer(1, 0), block(1), ...six]).blocks)).toBe(1.5);
});
