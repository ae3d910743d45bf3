import { expect, test } from 'vitest';

import type { ConsumeOptions } from '../../../../infra/kafka/consumption.ts';
import type { LogMessage } from '../../../../infra/kafka/client.ts';
import { readRanges } from '../../../../infra/kafka/read-ranges.ts';
import { topics } from '../../../../schemas/topics.ts';

const topic = topics.chainStatus;
const messages = (from: number, to: number): LogMessage[] =>
  Array.from({ length: to - from }, (_, index) => ({
    topic: topic.name,
    partition: 0,
    offset: from + index,
    key: null,
    value: Buffer.alloc(0),
    timestamp: 0,
  }));

test('continues after a rebalance without yielding a message twice', async () => {
  let options: ConsumeOptions | undefined;
  const startOffsets: unknown[] = [];
  const consume = async (given: ConsumeOptions) => {
    options = given;
    startOffsets.push(await given.startAt(topic.name, 0));
    return {
      stop: async () => {},
      seek: () => {},
      commit: async () => {},
      assigned: () => [],
      pause: () => {},
    };
  };
  const deliver = async (from: number, to: number): Promise<unknown> =>
    await options?.onBatch({
      topic: topic.name,
      partition: 0,
      messages: messages(from, to),
      highWatermark: 1000,
    });

  const reading = readRanges(topic, [{ partition: 0, from: 100, to: 300 }], consume, async () => {});
  const seen: number[] = [];
  const all = (async () => {
    for await (const batch of reading) seen.push(...batch.messages.map(({ offset }) => offset));
  })();
  await new Promise((resolve) => setImmediate(resolve));
  await deliver(100, 200);
  // The broker was away, or this process stood still: the group is joined again.
  startOffsets.push(await options?.startAt(topic.name, 0));
  // What was fetched before comes once more.
  await deliver(150, 250);
  await deliver(250, 400);
  await all;
  expect(startOffsets).toEqual([100, 200]);
  expect(seen).toEqual(messages(100, 300).map(({ offset }) => offset));
});
