import type { LogMessage } from '../../../infra/kafka/client.ts';
import { AppError, errorMessage } from '../../../schemas/errors.ts';
import type { Stream } from '../../define.ts';
import { readItem } from '../../streams.ts';
import { createBatch, createBatchBuffers } from './batch.ts';
import type { Target } from './batch.ts';
import { DEFAULT_LIMITS, createGatherer } from './gatherer.ts';
import type { GatherLimits, Gatherer } from './gatherer.ts';
import type { Reading } from './readings.ts';
import { createWriter } from './writer.ts';
import type { WriterDeps } from './writer.ts';

/** A message that cannot be read or projected. */
export interface Poison {
  readonly message: LogMessage;
  /** As it is recorded with a halt: what failed, and why. */
  readonly reason: string;
}

export interface PipelineOptions extends Omit<WriterDeps, 'onRoom'> {
  readonly targets: readonly Target[];
  readonly limits?: Partial<GatherLimits> | undefined;
}

/** The way of messages into tables: read and projected once for all targets, gathered in batches, written. */
export interface Pipeline extends Pick<Gatherer, 'caughtUp' | 'drain'> {
  /** Adds a message, or returns why it cannot be added. Waits while the batch is full and two are in flight. */
  add(reading: Reading, message: LogMessage): Promise<Poison | null>;
  /** Skips a message that an operator has named. */
  skip(reading: Reading, message: LogMessage): Promise<void>;
  /** Drops the batch that is gathered, and resolves when nothing is in flight. */
  stop(): Promise<void>;
}

export function createPipeline({ targets, limits, ...deps }: PipelineOptions): Pipeline {
  const { clock } = deps;
  const stream = streamOf(targets);
  const buffers = createBatchBuffers(targets);
  const writer = createWriter({ ...deps, onRoom: () => gatherer.onRoom() });
  const gatherer = createGatherer(
    writer,
    () => createBatch(targets, buffers),
    { ...DEFAULT_LIMITS, ...limits },
    clock,
  );
  let lastYield = clock.now();
  return {
    async add(reading, message) {
      // A fetch can hold seconds of work: let heartbeats and responses of the stores through.
      if (clock.now() - lastYield > 10) {
        await clock.turn();
        lastYield = clock.now();
      }
      const item = readItem(stream, message);
      await gatherer.ready();
      if (!reading.current) return null;
      if ('reason' in item) return { message, reason: item.reason };
      try {
        gatherer.batch().add(reading, item);
      } catch (error) {
        return { message, reason: `projecting failed: ${errorMessage(error)}` };
      }
      gatherer.added();
      return null;
    },
    async skip(reading, { offset }) {
      await gatherer.ready();
      if (!reading.current) return;
      gatherer.batch().skip(reading, offset);
      gatherer.added();
    },
    caughtUp: () => gatherer.caughtUp(),
    drain: () => gatherer.drain(),
    async stop() {
      gatherer.close();
      await writer.idle();
    },
  };
}

/** The stream that all of these read. */
export function streamOf(targets: readonly Pick<Target, 'projection'>[]): Stream {
  const [stream, ...others] = new Set(targets.map(({ projection }) => projection.topic));
  if (stream === undefined || others.length > 0) {
    throw new AppError('INVALID', `Projections of ${others.length + 1} streams cannot run together`);
  }
  return stream;
}
