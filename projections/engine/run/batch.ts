import { createRowEncoder } from '../../../infra/clickhouse/row-binary.ts';
import type { RowEncoder, SpareBuffers } from '../../../infra/clickhouse/row-binary.ts';
import type { Build } from '../builds.ts';
import type { BuildCheckpointMove } from '../checkpoints.ts';
import type { ClickHouseProjection, StreamItem } from '../../define.ts';
import type { Reading } from './readings.ts';

/** A projection and the build of it that is being written. */
export interface Target {
  readonly projection: ClickHouseProjection;
  readonly build: Build;
}

/** One target's part of a batch. */
export interface Share {
  readonly target: Target;
  readonly tables: ReadonlyMap<string, RowEncoder>;
  /** The rows of items that are removals, where these are inserted before the rest of the batch. */
  readonly removals: ReadonlyMap<string, RowEncoder>;
  /** Arguments of `derive`. */
  readonly touched: unknown[];
  readonly moves: Map<Reading, { expected: number; next: number }>;
}

export interface BatchMove {
  readonly reading: Reading;
  readonly move: BuildCheckpointMove;
}

/** By target and table. */
export type BatchBuffers = readonly ReadonlyMap<string, SpareBuffers>[];

/** Encoded rows of many messages by table, with the checkpoints to move once ClickHouse has acknowledged all of them. */
export interface Batch {
  readonly shares: readonly Share[];
  /** Adds a message for every target that has not read it. On an error nothing of the message is added. */
  add(reading: Reading, item: StreamItem): void;
  /** Skips a message that an operator has named. */
  skip(reading: Reading, offset: number): void;
  messages(): number;
  /** Rows of the largest table. */
  rows(): number;
  bytes(): number;
  /** Whether its last message of a partition removes what the next one puts back. */
  isOpen(): boolean;
  /** Checkpoint moves of partitions whose reading is current. */
  moves(): BatchMove[];
}

/** Buffers of rows that were inserted, for the batches that follow each other. */
export function createBatchBuffers(targets: readonly Target[]): BatchBuffers {
  return targets.map(({ projection }) => new Map(Object.keys(projection.tables).map((name) => [name, []])));
}

export function createBatch(
  targets: readonly Target[],
  buffers: BatchBuffers = createBatchBuffers(targets),
): Batch {
  let messages = 0;
  const shares = targets.map((target, index) => createShare(target, buffers[index]));
  const encoders = shares.flatMap(encodersOf);
  const open = new Set<Reading>();
  const sharesAt = (reading: Reading, offset: number): Share[] =>
    shares.filter(({ target }) => (reading.planned.get(target.build) ?? Infinity) <= offset);
  const pass = (reading: Reading, offset: number, passing: readonly Share[]): void => {
    for (const { target, moves } of passing) {
      const expected = moves.get(reading)?.expected ?? reading.planned.get(target.build) ?? offset;
      moves.set(reading, { expected, next: offset + 1 });
      reading.planned.set(target.build, offset + 1);
    }
    open.delete(reading);
    messages += 1;
    reading.next = offset + 1;
  };

  return {
    shares,
    add(reading, item) {
      const receiving = sharesAt(reading, item.offset);
      addRows(receiving, item);
      for (const { target, touched } of receiving) touched.push(target.projection.topic.touched(item));
      pass(reading, item.offset, receiving);
      if (receiving.some(({ target }) => target.projection.topic.isReplaced?.(item))) open.add(reading);
    },
    skip: (reading, offset) => pass(reading, offset, sharesAt(reading, offset)),
    messages: () => messages,
    rows: () => Math.max(0, ...encoders.map(({ rows }) => rows)),
    bytes: () => encoders.reduce((sum, { bytes }) => sum + bytes, 0),
    isOpen: () => [...open].some(({ current }) => current),
    moves: () =>
      shares.flatMap(({ target: { build }, moves }) =>
        [...moves]
          .filter(([reading]) => reading.current)
          .map(([reading, move]) => ({ reading, move: { build, partition: reading.partition, ...move } })),
      ),
  };
}

function createShare(target: Target, buffers?: ReadonlyMap<string, SpareBuffers>): Share {
  const { projection } = target;
  const encoders = (spare?: typeof buffers): ReadonlyMap<string, RowEncoder> =>
    new Map(
      Object.entries(projection.tables).map(([name, { columns }]) => [
        name,
        createRowEncoder(columns, spare?.get(name)),
      ]),
    );
  const removals = projection.isRemoval === undefined ? new Map<string, RowEncoder>() : encoders();
  return { target, tables: encoders(buffers), removals, touched: [], moves: new Map() };
}

function encodersOf({ tables, removals }: Share): RowEncoder[] {
  return [...tables.values(), ...removals.values()];
}

/** Adds the rows of a message to all of these shares, or on an error to none. */
function addRows(shares: readonly Share[], item: StreamItem): void {
  const undos = shares.flatMap((share) => encodersOf(share).map((encoder) => encoder.mark()));
  try {
    for (const { target, tables, removals } of shares) {
      const { projection } = target;
      const receiving = projection.isRemoval?.(item) === true ? removals : tables;
      for (const [table, rows] of Object.entries(projection.project(item))) {
        const encoder = receiving.get(table);
        if (encoder === undefined) throw new TypeError(`${projection.name} has no table ${table}`);
        encoder.add(rows);
      }
    }
  } catch (error) {
    for (const undo of undos) undo();
    throw error;
  }
}
