import { expect, test } from 'vitest';

import type { StreamMessage } from '../../../client/src/stream.ts';
import { NOTHING, applyMessage, transferRate } from '../../../console/src/live.ts';
import type { Live } from '../../../console/src/live.ts';

const block = (height: number, finality = 'ACCEPTED_ON_L2') => ({
  type: 'block',
  cursor: '',
  data: { height, hash: `0x${height}`, timestamp: new Date(height * 2000).toISOString(), finality },
});
const transfer = (height: number, index: number) => ({
  type: 'transfer',
  cursor: '',
  data: { block: height, event_index: index },
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

test('a block with more transfers than are shown has its whole count', () => {
  const many = Array.from({ length: 300 }, (_, i) => transfer(1, i));
  const live = after([...many, block(1)]);
  expect([live.blocks[0]?.transfers, live.transfers.length]).toEqual([300, 50]);
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

test('the height accepted on L1 is that of a final message, or of a block that is sent as accepted', () => {
  expect(after([block(1), block(2)]).final).toBeNull();
  expect(after([block(1, 'ACCEPTED_ON_L1'), block(2)]).final).toBe(1);
  expect(after([block(1, 'ACCEPTED_ON_L1'), block(2), final(2), final(1)]).final).toBe(2);
});

test('the rate is that of the blocks after the first', () => {
  expect(transferRate(after([transfer(1, 0), block(1)]).blocks)).toBeNull();
  // Six transfers in the four seconds between the blocks 1 and 3.
  const six = [...Array.from({ length: 6 }, (_, i) => transfer(2, i)), block(2), block(3)];
  expect(transferRate(after([transfer(1, 0), block(1), ...six]).blocks)).toBe(1.5);
});
