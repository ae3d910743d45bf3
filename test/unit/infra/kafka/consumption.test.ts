import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import kafkajs from 'kafkajs';
import Connection from 'kafkajs/src/network/connection.js';
import { afterEach, expect, test, vi } from 'vitest';

import { consume } from '../../../../infra/kafka/consumption.ts';
import { topics } from '../../../../schemas/topics.ts';
import { send, silent } from '../../../support/kafkajs.ts';

const topic = topics.chainStatus;

/** A kafkajs consumer whose joins and crashes the test decides. */
function scriptedConsumer() {
  const joins: { readonly resolve: () => void; readonly reject: (error: unknown) => void }[] = [];
  const calls: string[] = [];
  const listeners = new Map<string, (event: unknown) => void>();
  let config: kafkajs.ConsumerConfig | undefined;
  let hasGroup = true;
  let eachBatch: kafkajs.EachBatchHandler | undefined;
  const inGroup = (call: string): void => {
    if (!hasGroup) throw new Error('Consumer group was not initialized, consumer#run must be called first');
    calls.push(call);
  };
  const { events } = new kafkajs.Kafka({ brokers: ['127.0.0.1:1'] }).consumer({ groupId: 'unused' });
  const consumer = {
    events,
    on: (name: string, listener: (event: unknown) => void) => void listeners.set(name, listener),
    connect: async () => void calls.push('connect'),
    subscribe: async () => void calls.push('subscribe'),
    run: (given: kafkajs.ConsumerRunConfig) => {
      calls.push('join');
      ({ eachBatch } = given);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      joins.push({ resolve, reject });
      return promise;
    },
    disconnect: async () => void calls.push('disconnect'),
    seek: ({ offset }: { readonly offset: string }) => inGroup(`seek ${offset}`),
    pause: () => inGroup('pause'),
    resume: () => inGroup('resume'),
  } as unknown as kafkajs.Consumer;
  return {
    calls,
    joins,
    kafka: {
      consumer(given?: kafkajs.ConsumerConfig) {
        config = given;
        return consumer;
      },
    },
    /** What kafkajs does with a crash at first. */
    forgetGroup: () => void (hasGroup = false),
    /** What kafkajs does when its retries are exhausted. */
    async crash(error: Error): Promise<void> {
      const restart = (await config?.retry?.restartOnFailure?.(error)) ?? true;
      listeners.get(events.CRASH)?.({ payload: { error, groupId: '', restart } });
    },
    /** A crash that kafkajs does not call retriable. */
    fail: (error: Error) =>
      listeners.get(events.CRASH)?.({ payload: { error, groupId: '', restart: false } }),
    /** A batch of the messages at these offsets. */
    async deliver(offsets: readonly number[], highWatermark: number, isStale = false): Promise<void> {
      const batch = {
        topic: topic.name,
        partition: 0,
        highWatermark: String(highWatermark),
        messages: offsets.map((offset) => ({
          offset: String(offset),
          key: null,
          value: null,
          timestamp: '1',
        })),
        lastOffset: () => String(offsets.at(-1)),
      };
      await eachBatch?.({
        batch,
        isRunning: () => true,
        isStale: () => isStale,
        resolveOffset: (offset: string) => void calls.push(`resolve ${offset}`),
        heartbeat: async () => {},
      } as unknown as kafkajs.EachBatchPayload);
    },
    assign: () => {
      hasGroup = true;
      listeners.get(events.GROUP_JOIN)?.({ payload: { memberAssignment: { [topic.name]: [0] } } });
    },
  };
}

const options = {
  groupId: 'test',
  topics: [topic],
  startAt: async () => 0,
  onBatch: async () => {},
  onCrash: () => {},
};
const settle = (): Promise<unknown> => vi.advanceTimersByTimeAsync(0);

afterEach(() => void vi.useRealTimers());

/** A consumption that has joined its group. */
async function joined(
  onCrash: (error: unknown) => void = () => {},
  startAt: () => Promise<number> = options.startAt,
) {
  vi.useFakeTimers();
  const scripted = scriptedConsumer();
  const starting = consume(() => scripted.kafka, '', { ...options, onCrash, startAt });
  await settle();
  scripted.joins[0]?.resolve();
  return { scripted, consumption: await starting };
}

test.each([
  ['a broker that does not answer', new kafkajs.KafkaJSConnectionError('timed out'), 'STORE_UNAVAILABLE'],
  ['a defect', new TypeError('defect'), undefined],
])('a start that fails because of %s', async (_, failure, code) => {
  const scripted = scriptedConsumer();
  const consumer = { ...scripted.kafka.consumer(), subscribe: () => Promise.reject(failure) };
  const error: unknown = await consume(() => ({ consumer: () => consumer }), '', options).catch(
    (e: unknown) => e,
  );
  expect(error).toMatchObject(code === undefined ? { message: 'defect' } : { code, retryable: true });
  expect(scripted.calls).toEqual(['connect', 'disconnect']);
});

test('leaves the group after a join that was under way when it was stopped', async () => {
  const { scripted, consumption } = await joined();
  await scripted.crash(new Error('Kafka was unavailable'));
  await vi.advanceTimersByTimeAsync(1000);
  expect(scripted.calls).toEqual(['connect', 'subscribe', 'join', 'join']);

  let isStopped = false;
  const stopping = consumption.stop().then(() => (isStopped = true));
  await vi.advanceTimersByTimeAsync(500);
  expect([scripted.calls.at(-1), isStopped]).toEqual(['join', false]);
  scripted.assign();
  scripted.joins[1]?.resolve();
  await stopping;
  expect(scripted.calls.slice(-2)).toEqual(['join', 'disconnect']);
});

test('waits a bounded time for a join, and joins no more once it is stopped', async () => {
  const { scripted, consumption } = await joined();
  await scripted.crash(new Error('Kafka was unavailable'));
  await vi.advanceTimersByTimeAsync(1000);
  const stopping = consumption.stop();
  await vi.advanceTimersByTimeAsync(3000);
  await stopping;
  expect(scripted.calls.at(-1)).toBe('join');

  await scripted.crash(new Error('Kafka is unavailable'));
  scripted.joins[1]?.resolve();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(scripted.calls.slice(-2)).toEqual(['join', 'disconnect']);
});

test.each([
  ['and reports the eleventh within a minute', 1000, [11]],
  ['however many there are over the hours', 7000, []],
])('rejoins after a TypeError of kafkajs in a rebalance, %s', async (_, everyMs, reported) => {
  const found: number[] = [];
  let fails = 0;
  const { scripted } = await joined(() => found.push(fails));
  const defect = new Error('Cannot read properties', { cause: new TypeError('Cannot read properties') });
  for (fails = 1; fails <= 50 && found.length === 0; fails += 1) {
    scripted.fail(defect);
    await vi.advanceTimersByTimeAsync(everyMs);
    scripted.joins[fails]?.resolve();
  }
  expect(found).toEqual(reported);
  expect(scripted.joins.length).toBe(fails - reported.length);
});

test('survives an offset, a seek and a pause that come while kafkajs has forgotten its group', async () => {
  const crashes: unknown[] = [];
  const offset = Promise.withResolvers<number>();
  const { scripted, consumption } = await joined(
    (error) => crashes.push(error),
    async () => await offset.promise,
  );
  scripted.assign();
  scripted.forgetGroup();
  consumption.pause(topic.name, 0);
  consumption.seek(topic.name, 0, 3);
  offset.resolve(7);
  await settle();
  await scripted.crash(new Error('Kafka was unavailable'));
  await vi.advanceTimersByTimeAsync(1000);
  scripted.joins[1]?.resolve();
  scripted.assign();
  await settle();
  expect(crashes).toEqual([]);
  expect(scripted.calls).toEqual(['connect', 'subscribe', 'join', 'join', 'seek 7']);
});

/** A consumption that reads a partition from offset 5. */
async function readingFrom5() {
  const crashes: unknown[] = [];
  const { scripted } = await joined(
    (error) => crashes.push(error),
    async () => 5,
  );
  scripted.assign();
  await settle();
  return { scripted, crashes };
}

test('ends when the log ends below the next offset, before its offsets are used again', async () => {
  const { scripted, crashes } = await readingFrom5();
  await scripted.deliver([5, 6], 7);
  // Offsets 4 to 6 were lost, and kafkajs reads from the beginning.
  await scripted.deliver([0, 1, 2, 3], 4);
  expect(crashes).toEqual([
    expect.objectContaining({
      code: 'CHECKPOINT_OUTSIDE_LOG',
      message: expect.stringContaining('chain.status:0: expected offset 7, but the log ends at 4'),
    }),
  ]);
});

test('skips messages below the next offset while the log has that offset, and those of an earlier seek', async () => {
  const { scripted, crashes } = await readingFrom5();
  await scripted.deliver([0, 1], 4, true);
  await scripted.deliver([3, 4], 5);
  await scripted.deliver([5], 6);
  expect(crashes).toEqual([]);
  expect(scripted.calls.slice(-2)).toEqual(['resolve 4', 'resolve 5']);
});

test('reports a failure that is not retriable', async () => {
  const crashes: unknown[] = [];
  const { scripted } = await joined((error) => crashes.push(error));
  const denied = new Error('not authorized');
  scripted.fail(denied);
  await vi.advanceTimersByTimeAsync(1000);
  expect([scripted.joins.length, crashes]).toEqual([1, [denied]]);
});

test('disconnects when the start fails', async () => {
  const scripted = scriptedConsumer();
  const starting = consume(() => scripted.kafka, '', options);
  starting.catch(() => {});
  while (scripted.joins.length === 0) await new Promise((resolve) => setImmediate(resolve));
  scripted.joins[0]?.reject(new Error('not authorized'));
  await expect(starting).rejects.toThrow('not authorized');
  expect(scripted.calls.at(-1)).toBe('disconnect');
});

test('a stop does not wait for the fetch under way', async () => {
  const scripted = scriptedConsumer();
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const timeouts = { connectionTimeout: 5000, requestTimeout: 30_000 };
  const fetching = Promise.withResolvers<Connection>();
  const starting = consume(
    (socketFactory) => {
      fetching.resolve(
        new Connection({ host: '127.0.0.1', port, socketFactory, ...timeouts, logger: silent }),
      );
      return scripted.kafka;
    },
    '',
    options,
  );
  const connection = await fetching.promise;
  await connection.connect();
  send(connection.requestQueue, 1);
  await vi.waitFor(() => expect(scripted.joins).toHaveLength(1));
  scripted.joins[0]?.resolve();

  await (await starting).stop();
  expect(connection.socket.destroyed).toBe(true);
  server.close();
});
