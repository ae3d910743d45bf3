import { randomUUID } from 'node:crypto';

import type { Topic } from '../../schemas/topics.ts';
import type { ConsumeOptions, Consumption, LogMessage } from './consumption.ts';

/** Offsets `from` to before `to` of one partition. */
export interface OffsetRange {
  readonly partition: number;
  readonly from: number;
  readonly to: number;
}

interface PendingBatch {
  readonly partition: number;
  readonly messages: readonly LogMessage[];
  readonly onTaken: () => void;
}

/**
 * Reads ranges of a topic in batches of one partition each, in order within a partition. The next batch is fetched when
 * the caller asks for it, which bounds memory. Reads in a consumer group of its own; `deleteGroup` deletes it at the end.
 */
export async function* readRanges(
  topic: Topic<unknown>,
  ranges: readonly OffsetRange[],
  consume: (options: ConsumeOptions) => Promise<Consumption>,
  deleteGroup: (groupId: string) => Promise<void>,
  fetchBytes?: number,
  signal?: AbortSignal,
): AsyncGenerator<{ partition: number; messages: readonly LogMessage[] }> {
  const remaining = new Map(
    ranges.filter(({ from, to }) => from < to).map(({ partition, from, to }) => [partition, { from, to }]),
  );
  if (remaining.size === 0) return;
  const pending: PendingBatch[] = [];
  let failure: { readonly error: unknown } | null = null;
  let wake: () => void = () => {};
  const groupId = `read-${randomUUID()}`;
  const consumption = await consume({
    groupId,
    topics: [topic],
    partitions: [...remaining.keys()],
    startAt: async (_, partition) => remaining.get(partition)?.from ?? 'end',
    onBatch: ({ partition, messages }) =>
      new Promise<void>((onTaken) => {
        pending.push({ partition, messages, onTaken });
        wake();
      }),
    onCrash: (error) => {
      failure = { error };
      wake();
    },
    ...(fetchBytes === undefined ? {} : { fetchBytes }),
  });
  const onAbort = (): void => wake();
  signal?.addEventListener('abort', onAbort);
  try {
    while (remaining.size > 0) {
      signal?.throwIfAborted();
      if (failure !== null) throw (failure as { error: unknown }).error;
      const batch = pending.shift();
      if (batch === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        continue;
      }
      try {
        const range = remaining.get(batch.partition);
        // The fetch may have begun before the range ended, or before a rebalance.
        const messages = batch.messages.filter(
          ({ offset }) => range !== undefined && offset >= range.from && offset < range.to,
        );
        if (messages.length > 0) yield { partition: batch.partition, messages };
        const next = (batch.messages.at(-1)?.offset ?? 0) + 1;
        // The start offset after a rebalance.
        if (range !== undefined) range.from = Math.max(range.from, next);
        if (range === undefined || next >= range.to) {
          remaining.delete(batch.partition);
          consumption.pause(topic.name, batch.partition);
        }
      } finally {
        batch.onTaken();
      }
    }
  } finally {
    signal?.removeEventListener('abort', onAbort);
    for (const { onTaken } of pending) onTaken();
    await consumption.stop();
    await deleteGroup(groupId);
  }
}
