import { createRowEncoder } from '../../../infra/clickhouse/row-binary.ts';
import type { RowEncoder } from '../../../infra/clickhouse/row-binary.ts';
import type { Build } from '../builds.ts';
import type { CheckpointMove } from '../checkpoints.ts';
import type { ClickHouseProjection, StreamItem } from '../../define.ts';
import type { Halt } from '../halts.ts';

/** A projection and the build of it that is being written. */
export interface Target {
  readonly projection: ClickHouseProjection;
  readonly build: Build;
}

/** One partition as it is being read, from an assignment (or a refused checkpoint) to the next. */
export interface Reading {
  readonly partition: number;
  /** False once the partition is another's, or was begun again: what is gathered moves no checkpoint any more. */
  current: boolean;
  /** Next offset to take from the consumer. */
  next: number;
  /** By target: its checkpoint once everything gathered is written. A target that is ahead of `next` skips. */
  readonly planned: Map<Target, number>;
  /** By target: its checkpoint as it is stored. */
  readonly stored: Map<Target, number>;
  /** The message that stops this partition. */
  halt: Halt | null;
}

/** What one target has of a batch. */
export interface Share {
  readonly target: Target;
  readonly tables: ReadonlyMap<string, RowEncoder>;
  /** What `derive` is told. */
  readonly touched: unknown[];
  readonly moves: Map<Reading, { expected: number; next: number }>;
}

export interface BatchMove {
  readonly reading: Reading;
  readonly target: Target;
  readonly move: CheckpointMove;
}

/** Bytes by table, of each target. */
export type BatchSizes = readonly ReadonlyMap<string, number>[];

/** Rows of many messages, as bytes a table, with the checkpoints that they move once ClickHouse has them all. */
export interface Batch {
  readonly shares: readonly Share[];
  /** Takes a message for every target that has not passed it. On an error nothing of the message is kept. */
  add(reading: Reading, item: StreamItem): void;
  /** Passes over a message that an operator has named. */
  pass(reading: Reading, offset: number): void;
  messages(): number;
  /** Rows of the largest table. */
  rows(): number;
  bytes(): number;
  sizes(): BatchSizes;
  /** The moves of partitions that are still ours. */
  moves(): BatchMove[];
}

/**
 * @param sizes of the batch before, the best guess of this one's. Numbers and not that batch: it would be kept, and with
 *   it the one before it, and so all there were.
 */
export function createBatch(targets: readonly Target[], sizes?: BatchSizes): Batch {
  let messages = 0;
  const shares = targets.map((target, index): Share => ({
    target,
    tables: new Map(
      Object.entries(target.projection.tables).map(([name, { columns }]) => [
        name,
        createRowEncoder(columns, sizes?.[index]?.get(name)),
      ]),
    ),
    touched: [],
    moves: new Map(),
  }));
  const encoders = shares.flatMap(({ tables }) => [...tables.values()]);
  const wanting = (reading: Reading, offset: number): Share[] =>
    shares.filter(({ target }) => (reading.planned.get(target) ?? Infinity) <= offset);

  const move = (share: Share, reading: Reading, offset: number): void => {
    const begun = share.moves.get(reading);
    const expected = begun?.expected ?? reading.planned.get(share.target) ?? offset;
    share.moves.set(reading, { expected, next: offset + 1 });
    reading.planned.set(share.target, offset + 1);
  };

  return {
    shares,
    add(reading, item) {
      const takers = wanting(reading, item.offset);
      const undo = takers.flatMap(({ tables }) => [...tables.values()].map((encoder) => encoder.mark()));
      try {
        for (const { target, tables } of takers) {
          for (const [table, rows] of Object.entries(target.projection.project(item))) {
            const encoder = tables.get(table);
            if (encoder === undefined) throw new TypeError(`${target.projection.name} has no table ${table}`);
            encoder.add(rows);
          }
        }
      } catch (error) {
        for (const takeBack of undo) takeBack();
        throw error;
      }
      for (const share of takers) {
        share.touched.push(share.target.projection.topic.touched(item));
        move(share, reading, item.offset);
      }
      messages += 1;
      reading.next = item.offset + 1;
    },
    pass(reading, offset) {
      for (const share of wanting(reading, offset)) move(share, reading, offset);
      messages += 1;
      reading.next = offset + 1;
    },
    messages: () => messages,
    rows: () => Math.max(0, ...encoders.map(({ rows }) => rows)),
    sizes: () => shares.map(({ tables }) => new Map([...tables].map(([name, { bytes }]) => [name, bytes]))),
    bytes: () => encoders.reduce((sum, { bytes }) => sum + bytes, 0),
    moves: () =>
      shares.flatMap(({ target, moves }) =>
        [...moves]
          .filter(([reading]) => reading.current)
          .map(([reading, { expected, next }]) => ({
            reading,
            target,
            move: { build: target.build, partition: reading.partition, expected, next },
          })),
      ),
  };
}
