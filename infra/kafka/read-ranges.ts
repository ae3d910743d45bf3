import { randomUUID } from 'node:crypto';

import type { Topic } from '../../schemas/topics.ts';
import type { ConsumeOptions, Consumption, LogMessage } from './consumption.ts';

/** Offsets `from` to before `to` of one partition. */
export interface OffsetRange {
  readonly partition: number;
  readonly from: number;
  readonly to: number;
}

interface Waiting {
  readonly partition: number;
  readonly messages: readonly LogMessage[];
  readonly done: () => void;
}

/**
 * The messages of some ranges of a topic, as batches of one partition each, in order within a partition. One batch is
 * handed over at a time, so the reader's pace bounds what is held in memory. The reader is a group of its own for as
 * long as it reads; `forget` removes it.
 */
export async function* readRanges(
  topic: Topic<unknown>,
  ranges: readonly OffsetRange[],
  consume: (options: ConsumeOptions) => Promise<Consumption>,
  forget: (groupId: string) => Promise<void>,
  fetchBytes?: number,
  signal?: AbortSignal,
): AsyncGenerator<{ partition: number; messages: readonly LogMessage[] }> {
  const left = new Map(
    ranges.filter(({ from, to }) => from < to).map(({ partition, from, to }) => [partition, { from, to }]),
  );
  if (left.size === 0) return;
  const waiting: Waiting[] = [];
  let failure: { readonly error: unknown } | null = null;
  let wake: () => void = () => {};
  const groupId = `read-${randomUUID()}`;
  const consumption = await consume({
    groupId,
    topics: [topic],
    partitions: [...left.keys()],
    startAt: async (_, partition) => left.get(partition)?.from ?? 'end',
    onBatch: ({ partition, messages }) =>
      new Promise<void>((done) => {
        waiting.push({ partition, messages, done });
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
    while (left.size > 0) {
      signal?.throwIfAborted();
      if (failure !== null) throw (failure as { error: unknown }).error;
      const batch = waiting.shift();
      if (batch === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        continue;
      }
      try {
        const range = left.get(batch.partition);
        // A fetch may have begun before its partition was done with, or before the group was joined again.
        const messages = batch.messages.filter(
          ({ offset }) => range !== undefined && offset >= range.from && offset < range.to,
        );
        if (messages.length > 0) yield { partition: batch.partition, messages };
        const next = (batch.messages.at(-1)?.offset ?? 0) + 1;
        // Where it goes on when the group is joined again.
        if (range !== undefined) range.from = Math.max(range.from, next);
        if (range === undefined || next >= range.to) {
          left.delete(batch.partition);
          consumption.pause(topic.name, batch.partition);
        }
      } finally {
        batch.done();
      }
    }
  } finally {
    signal?.removeEventListener('abort', onAbort);
    for (const { done } of waiting) done();
    await consumption.stop();
    await forget(groupId);
  }
}
