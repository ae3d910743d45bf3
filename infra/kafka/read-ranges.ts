import { randomUUID } from 'node:crypto';

import type { Topic } from '../../schemas/topics.ts';
import type { ConsumeOptions, Consumption, LogBatch } from './consumption.ts';

/** Offsets `from` to before `to` of one partition. */
export interface OffsetRange {
  readonly partition: number;
  readonly from: number;
  readonly to: number;
}

type Batch = Pick<LogBatch, 'partition' | 'messages'>;

/**
 * Reads ranges of a topic in batches of one partition each, in order within a partition. The next batch is fetched when
 * the caller asks for it, which bounds memory. Reads in a consumer group of its own; `deleteGroup` deletes it at the end.
 */
export async function* readRanges(
  topic: Topic<unknown>,
  ranges: readonly OffsetRange[],
  consume: (options: ConsumeOptions) => Promise<Consumption>,
  deleteGroup: (groupId: string) => Promise<void>,
  signal?: AbortSignal,
): AsyncGenerator<Batch> {
  /** `from` is the next offset, and the start offset after a rebalance. */
  const reading = new Map(
    ranges.filter(({ from, to }) => from < to).map(({ partition, from, to }) => [partition, { from, to }]),
  );
  if (reading.size === 0) return;
  const groupId = `read-${randomUUID()}`;
  const handover = createHandover(signal);
  const consumption = await consume({
    groupId,
    topics: [topic],
    partitions: [...reading.keys()],
    startAt: async (_, partition) => reading.get(partition)?.from ?? 0,
    onBatch: (batch) => handover.offer(batch),
    onCrash: (error) => handover.fail(error),
    // All messages of the ranges are in the log: only a stop could wait.
    maxWaitMs: 100,
  }).catch((error: unknown) => {
    handover.close();
    throw error;
  });
  try {
    while ([...reading.values()].some(({ from, to }) => from < to)) {
      const { batch, onTaken } = await handover.take();
      try {
        const { partition } = batch;
        const range = reading.get(partition) ?? { from: 0, to: 0 };
        // The fetch may have begun before the range ended, or before a rebalance.
        const messages = batch.messages.filter(({ offset }) => offset >= range.from && offset < range.to);
        if (messages.length > 0) yield { partition, messages };
        range.from = Math.max(range.from, (batch.messages.at(-1)?.offset ?? 0) + 1);
        if (range.from >= range.to) consumption.pause(topic.name, partition);
      } finally {
        onTaken();
      }
    }
  } finally {
    handover.close();
    await consumption.stop();
    await deleteGroup(groupId);
  }
}

/** Passes batches from a consumer to one reader. `offer` resolves when the reader is done with the batch. */
function createHandover(signal: AbortSignal | undefined) {
  const offered: { readonly batch: Batch; readonly onTaken: () => void }[] = [];
  let failure: { readonly error: unknown } | null = null;
  let wake = (): void => {};
  const onAbort = (): void => wake();
  signal?.addEventListener('abort', onAbort);
  return {
    offer: (batch: Batch): Promise<void> =>
      new Promise((onTaken) => {
        offered.push({ batch, onTaken });
        wake();
      }),
    fail(error: unknown): void {
      failure = { error };
      wake();
    },
    /** @throws what `fail` was called with, or the reason of the signal */
    async take(): Promise<(typeof offered)[number]> {
      for (;;) {
        signal?.throwIfAborted();
        if (failure !== null) throw failure.error;
        const next = offered.shift();
        if (next !== undefined) return next;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
    close(): void {
      signal?.removeEventListener('abort', onAbort);
      for (const { onTaken } of offered) onTaken();
    },
  };
}
