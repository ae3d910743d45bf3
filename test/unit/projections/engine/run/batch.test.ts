import { describe, expect, test } from 'vitest';

import { createBatch } from '../../../../../projections/engine/run/batch.ts';
import type { Target } from '../../../../../projections/engine/run/batch.ts';
import type { Reading } from '../../../../../projections/engine/run/readings.ts';
import type { BlockProjection } from '../../../../../projections/define.ts';
import type { ChainBlocksMessage } from '../../../../../schemas/messages/chain-blocks.ts';
import { chainBlocks } from '../../../../../projections/streams.ts';
import { accepted, makeBlock, reverted } from '../../../../support/chain-messages.ts';

/** A projection of one number a block; heights above 100 have a value that its column cannot hold. */
const projection = (name: string): BlockProjection => ({
  kind: 'clickhouse',
  name,
  version: 1,
  topic: chainBlocks,
  ddl: '',
  tables: { numbers: { columns: [{ name: 'n', type: 'UInt8' }] } },
  project: ({ message }) => ({ numbers: [{ n: 7 }, { n: message.block.height > 100 ? 256 : 8 }] }),
});
const target = (name: string): Target => ({
  projection: projection(name),
  build: { projection: name, version: 1, build: 1, names: { numbers: `${name}_v1_b1` } },
});
const reading = (planned: readonly [Target, number][]): Reading => ({
  partition: 2,
  current: true,
  next: 0,
  planned: new Map(planned.map(([{ build }, next]) => [build, next])),
  stored: new Map(),
  halt: null,
});
const item = (
  offset: number,
  height = offset,
  message: ChainBlocksMessage = accepted(makeBlock({ height, transactions: [] }), height + 1),
) => ({
  message,
  decoded: { transfers: [], malformed: [] },
  partition: 2,
  offset,
});

describe('createBatch', () => {
  test('adds a message for the targets that have not read it, and moves only their checkpoints', () => {
    const [behind, ahead] = [target('behind'), target('ahead')];
    const place = reading([
      [behind, 0],
      [ahead, 2],
    ]);
    const batch = createBatch([behind, ahead]);
    for (const offset of [0, 1]) batch.add(place, item(offset));
    expect(batch.moves().map(({ move }) => [move.build.projection, move.expected, move.next])).toEqual([
      ['behind', 0, 2],
    ]);
    for (const offset of [2, 3]) batch.add(place, item(offset));
    expect(batch.moves().map(({ move }) => [move.build.projection, move.expected, move.next])).toEqual([
      ['behind', 0, 4],
      ['ahead', 2, 4],
    ]);
    expect(batch.shares.map(({ tables }) => tables.get('numbers')?.rows)).toEqual([8, 4]);
    expect(place.next).toBe(4);
  });

  test('adds nothing of a message that cannot be projected', () => {
    const only = target('only');
    const place = reading([[only, 0]]);
    const batch = createBatch([only]);
    batch.add(place, item(0));
    expect(() => batch.add(place, item(1, 101))).toThrow('UInt8');
    const [share] = batch.shares;
    expect(batch.bytes()).toBe(2);
    expect(share?.tables.get('numbers')?.take().toString('hex')).toBe('0708');
    expect(share?.touched).toEqual([expect.objectContaining({ offset: 0 })]);
    expect(batch.moves().map(({ move }) => move.next)).toEqual([1]);
  });

  test('keeps the rows that take others back apart, for projections that ask for it', () => {
    const plain = target('plain');
    const marking: Target = {
      ...target('last'),
      projection: { ...projection('last'), isRemoval: ({ offset }) => offset === 1 },
    };
    const place = reading([
      [plain, 0],
      [marking, 0],
    ]);
    const batch = createBatch([plain, marking]);
    for (const offset of [0, 1]) batch.add(place, item(offset));
    expect(batch.shares.map(({ tables }) => tables.get('numbers')?.rows)).toEqual([4, 2]);
    expect(batch.shares.map(({ removals }) => removals.get('numbers')?.rows)).toEqual([undefined, 2]);
    expect(() => batch.add(place, item(2, 101))).toThrow('UInt8');
    expect(batch.bytes()).toBe(8);
  });

  test('is open between the revert and the acceptance of a repair, while its partition is read', () => {
    const only = target('only');
    const [place, other] = [reading([[only, 0]]), reading([[only, 0]])];
    const batch = createBatch([only]);
    const block = makeBlock({ height: 0, transactions: [] });
    const repair = { ...reverted(block, 4), cause: 'repair' } as const;
    const open = [reverted(block, 2), repair, accepted(block, 5)].map((message, offset) => {
      batch.add(place, item(offset, 0, message));
      batch.add(other, item(offset));
      return batch.isOpen();
    });
    expect(open).toEqual([false, true, false]);
    batch.add(place, item(3, 0, repair));
    place.current = false;
    expect(batch.isOpen()).toBe(false);
  });

  test('moves no checkpoint of a partition that was reopened', () => {
    const only = target('only');
    const [old, fresh] = [reading([[only, 0]]), reading([[only, 0]])];
    const batch = createBatch([only]);
    batch.add(old, item(0));
    batch.add(old, item(1));
    old.current = false;
    batch.add(fresh, item(0));
    expect(batch.moves().map(({ move }) => [move.expected, move.next])).toEqual([[0, 1]]);
  });

  test('expects in the next batch the checkpoint that this one moves to', () => {
    const only = target('only');
    const place = reading([[only, 0]]);
    createBatch([only]).add(place, item(0));
    const second = createBatch([only]);
    second.add(place, item(1));
    second.skip(place, 2);
    expect(second.moves().map(({ move }) => [move.expected, move.next])).toEqual([[1, 3]]);
  });
});
