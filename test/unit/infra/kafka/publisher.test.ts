import kafkajs from 'kafkajs';
import { expect, test } from 'vitest';

import { createPublisher } from '../../../../infra/kafka/publisher.ts';
import type { BatchProducer, Publisher } from '../../../../infra/kafka/publisher.ts';
import { topics } from '../../../../schemas/topics.ts';
import type { Topic } from '../../../../schemas/topics.ts';

const topic: Topic<unknown> = topics.chainBlocks;

type Batch = Parameters<BatchProducer['sendBatch']>[0];
type Response = Awaited<ReturnType<BatchProducer['sendBatch']>>;
type Answer = (stored: Response, batch: Batch) => Response | Promise<Response>;

/** A log behind scripted producers: it stores every request, then an answer of the script may replace its own. */
function scriptedLog(answerOf: (request: number, partitions: readonly number[]) => Answer | undefined) {
  const logs = new Map<number, string[]>();
  let requests = 0;
  const producers: { isClosed: boolean }[] = [];
  const connect = async (): Promise<BatchProducer> => {
    const state = { isClosed: false };
    producers.push(state);
    return {
      async sendBatch(batch) {
        requests += 1;
        const messages = (batch.topicMessages ?? []).flatMap((one) => one.messages);
        const partitions = [...new Set(messages.map(({ partition }) => partition ?? -1))];
        const answer = answerOf(requests, partitions);
        const stored = partitions.map((partition) => {
          const log = logs.get(partition) ?? [];
          logs.set(partition, log);
          const baseOffset = String(log.length);
          for (const message of messages) {
            if (message.partition === partition) log.push(String(message.value));
          }
          return { topicName: topic.name, partition, errorCode: 0, baseOffset };
        });
        return answer === undefined ? stored : await answer(stored, batch);
      },
      async disconnect() {
        state.isClosed = true;
      },
    };
  };
  return { connect, producers, log: (partition: number) => logs.get(partition) ?? [] };
}

const message = (partition: number, value: string) => ({ partition, value });

async function expectStored(
  log: (partition: number) => readonly string[],
  publication: { partition: number; offset: number },
  value: string,
): Promise<void> {
  expect(Number.isSafeInteger(publication.offset)).toBe(true);
  expect(log(publication.partition)[publication.offset]).toBe(JSON.stringify(value));
}

async function publishTwo(publisher: Publisher): Promise<{ partition: number; offset: number }[]> {
  return await publisher.publish(topic, [message(0, 'a'), message(1, 'b')]);
}

test('sends a partition again that the response lacks', async () => {
  let lacking = 2;
  const { connect, log } = scriptedLog((_, partitions) =>
    partitions.includes(1) && (lacking -= 1) >= 0
      ? (stored) => stored.filter(({ partition }) => partition !== 1)
      : undefined,
  );
  const [first, second] = await publishTwo(createPublisher(connect, ''));
  await expectStored(log, first!, 'a');
  await expectStored(log, second!, 'b');
  expect(log(0)).toEqual(['"a"']);
});

test.each(['-1', undefined, ''])('takes base offset %j for no acknowledgement', async (baseOffset) => {
  let lacking = 1;
  const { connect, log } = scriptedLog((_, partitions) =>
    partitions.includes(1) && (lacking -= 1) >= 0
      ? (stored) =>
          stored.map(({ baseOffset: own, ...rest }) =>
            rest.partition === 0
              ? { ...rest, baseOffset: own ?? '' }
              : { ...rest, ...(baseOffset === undefined ? {} : { baseOffset }) },
          )
      : undefined,
  );
  const [, second] = await publishTwo(createPublisher(connect, ''));
  await expectStored(log, second!, 'b');
  expect(log(1).length).toBe(2);
});

test('sends a call that is too large for one request in several, in order, and none after one that failed', async () => {
  const sizes: number[] = [];
  let failsAt = Number.POSITIVE_INFINITY;
  const { connect, log } = scriptedLog((request) => (stored, { topicMessages }) => {
    sizes.push((topicMessages ?? []).flatMap(({ messages }) => messages).length);
    if (request === failsAt) throw new Error('connection lost');
    return stored;
  });
  const publisher = createPublisher(connect, '');
  const values = ['a', 'b', 'c', 'd', 'e'].map((letter) => letter.repeat(5_000_000));
  const messages = values.flatMap((value, index) => [message(0, value), message(1, String(index))]);
  const stored = await publisher.publish(topic, messages);
  for (const [index, { value, partition }] of messages.entries()) {
    expect(stored[index]?.partition).toBe(partition);
    await expectStored(log, stored[index]!, value);
  }
  expect(sizes.toSorted((a, b) => a - b)).toEqual([1, 2, 2, 5]);

  failsAt = 6;
  await expect(publisher.publish(topic, messages.slice(0, 1))).resolves.toHaveLength(1);
  await expect(
    publisher.publish(
      topic,
      values.map((value) => message(0, value)),
    ),
  ).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
  // The request that failed has stored its two, and nothing followed it.
  expect(log(0).length).toBe(5 + 1 + 2);
});

test.each([
  ['two messages that do not fit one request together', [7, 7]],
  ['messages after one that is larger than a request', [13, 1]],
])('sends %s one by one', async (_, megabytes) => {
  const sizes: number[] = [];
  const { connect, log } = scriptedLog(() => (stored, { topicMessages }) => {
    sizes.push((topicMessages ?? []).flatMap(({ messages }) => messages).length);
    return stored;
  });
  const values = megabytes.map((count) => 'x'.repeat(count * 1_000_000));
  await createPublisher(connect, '').publish(
    topic,
    values.map((value) => message(0, value)),
  );
  expect(sizes).toEqual([1, 1]);
  expect(log(0).map((value) => value.length)).toEqual(values.map((value) => JSON.stringify(value).length));
});

test.each(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE'])(
  'names the topic and key of a message that the broker rejects as %s, and is not retryable',
  async (type) => {
    const { connect } = scriptedLog(() => () => {
      const cause = Object.assign(new kafkajs.KafkaJSProtocolError('too large'), { type });
      throw Object.assign(new kafkajs.KafkaJSNonRetriableError('failed'), { cause });
    });
    const call = createPublisher(connect, 'prefix.').publish(topic, [{ partition: 0, key: '7', value: 'a' }]);
    await expect(call).rejects.toMatchObject({
      code: 'MESSAGE_TOO_LARGE',
      retryable: false,
      message: expect.stringMatching(/prefix\.chain\.blocks .* 3 bytes .*key 7.*max\.message\.bytes/),
    });
  },
);

test('rejects with a retryable error after its attempts', async () => {
  let requests = 0;
  const { connect } = scriptedLog(() => () => {
    requests += 1;
    return [];
  });
  await expect(createPublisher(connect, '').publish(topic, [message(0, 'a')])).rejects.toMatchObject({
    code: 'STORE_UNAVAILABLE',
    retryable: true,
  });
  expect(requests).toBe(3);
});

test('neither rejects nor repeats a call whose partition was acknowledged when another partition fails', async () => {
  const { connect, log } = scriptedLog((_, partitions) =>
    partitions.includes(1)
      ? () => {
          throw new Error('NOT_LEADER_FOR_PARTITION');
        }
      : undefined,
  );
  const publisher = createPublisher(connect, '');
  const [good, bad] = await Promise.allSettled([
    publisher.publish(topic, [message(0, 'a')]),
    publisher.publish(topic, [message(1, 'b')]),
  ]);
  expect(good).toEqual({ status: 'fulfilled', value: [{ partition: 0, offset: 0 }] });
  expect(bad.status).toBe('rejected');
  expect(log(0)).toEqual(['"a"']);
});

test('settles a call only when all its partitions have ended', async () => {
  const slow = Promise.withResolvers<void>();
  const { connect } = scriptedLog((_, partitions) => async (stored) => {
    if (partitions.includes(1)) throw new Error('NOT_LEADER_FOR_PARTITION');
    await slow.promise;
    return stored;
  });
  let settled = false;
  const call = publishTwo(createPublisher(connect, '')).finally(() => {
    settled = true;
  });
  call.catch(() => {});
  await new Promise((resolve) => {
    setTimeout(resolve, 20);
  });
  expect(settled).toBe(false);
  slow.resolve();
  await expect(call).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
});

test('replaces a producer after an error, and closes it when its last request has ended', async () => {
  // Partitions 0 and 4 share a producer.
  const slow = Promise.withResolvers<void>();
  let failing = true;
  const { connect, producers } = scriptedLog((_, partitions) => async (stored) => {
    if (partitions.includes(4) && failing) throw new Error('connection lost');
    if (partitions.includes(0)) await slow.promise;
    return stored;
  });
  const publisher = createPublisher(connect, '');
  const pending = publisher.publish(topic, [message(0, 'a')]);
  await expect(publisher.publish(topic, [message(4, 'b')])).rejects.toThrow('Kafka did not acknowledge');
  failing = false;
  await publisher.publish(topic, [message(4, 'c')]);
  expect(producers).toEqual([{ isClosed: false }, { isClosed: false }]);
  slow.resolve();
  await pending;
  await new Promise(setImmediate);
  expect(producers).toEqual([{ isClosed: true }, { isClosed: false }]);
});

test('keeps the order of calls in a partition and reports where each message lies', async () => {
  const { connect, log } = scriptedLog(() => undefined);
  const publisher = createPublisher(connect, '');
  const calls = Array.from({ length: 50 }, (_, i) => [
    message(i % 3, `x${i}`),
    message((i + 1) % 3, `y${i}`),
  ]);
  const results = await Promise.all(calls.map((messages) => publisher.publish(topic, messages)));
  for (const [i, publications] of results.entries()) {
    for (const [j, publication] of publications.entries()) {
      const value = calls[i]?.[j]?.value ?? '';
      await expectStored(log, publication, value);
    }
  }
  for (const partition of [0, 1, 2]) {
    const expected = calls.flat().filter((one) => one.partition === partition);
    expect(log(partition)).toEqual(expected.map(({ value }) => JSON.stringify(value)));
  }
});
