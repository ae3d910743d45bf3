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

/** What a run knows of a partition, from an assignment or a checkpoint conflict to the next. */
export interface Reading {
  readonly partition: number;
  /** False once the partition is revoked or reopened: its gathered messages then move no checkpoint. */
  current: boolean;
  /** Next offset to take from the consumer. */
  next: number;
  /** By target, its checkpoint once all gathered messages are written. A target ahead of `next` skips messages. */
  readonly planned: Map<Target, number>;
  /** By target, its stored checkpoint. */
  readonly stored: Map<Target, number>;
  /** The poison message that halts this partition. */
  halt: Halt | null;
}

/** One target's part of a batch. */
export interface Share {
  readonly target: Target;
  readonly tables: ReadonlyMap<string, RowEncoder>;
  /** Arguments of `derive`. */
  readonly touched: unknown[];
  readonly moves: Map<Reading, { expected: number; next: number }>;
}

export interface BatchMove {
  readonly reading: Reading;
  readonly target: Target;
  readonly move: CheckpointMove;
}

/** By target, bytes by table. */
export type BatchSizes = readonly ReadonlyMap<string, number>[];

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
  sizes(): BatchSizes;
  /** Checkpoint moves of partitions whose reading is current. */
  moves(): BatchMove[];
}

/**
 * @param sizes sizes of the previous batch, as initial buffer sizes. Numbers rather than that batch, which would keep all
 *   earlier batches in memory.
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
  const sharesAt = (reading: Reading, offset: number): Share[] =>
    shares.filter(({ target }) => (reading.planned.get(target) ?? Infinity) <= offset);

  const move = (share: Share, reading: Reading, offset: number): void => {
    const started = share.moves.get(reading);
    const expected = started?.expected ?? reading.planned.get(share.target) ?? offset;
    share.moves.set(reading, { expected, next: offset + 1 });
    reading.planned.set(share.target, offset + 1);
  };

  return {
    shares,
    add(reading, item) {
      const receiving = sharesAt(reading, item.offset);
      const undos = receiving.flatMap(({ tables }) => [...tables.values()].map((encoder) => encoder.mark()));
      try {
        for (const { target, tables } of receiving) {
          for (const [table, rows] of Object.entries(target.projection.project(item))) {
            const encoder = tables.get(table);
            if (encoder === undefined) throw new TypeError(`${target.projection.name} has no table ${table}`);
            encoder.add(rows);
          }
        }
      } catch (error) {
        for (const undo of undos) undo();
        throw error;
      }
      for (const share of receiving) {
        share.touched.push(share.target.projection.topic.touched(item));
        move(share, reading, item.offset);
      }
      messages += 1;
      reading.next = item.offset + 1;
    },
    skip(reading, offset) {
      for (const share of sharesAt(reading, offset)) move(share, reading, offset);
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
