import { jsonOf } from '../../infra/json.ts';
import type { Kafka, LogMessage, Publisher } from '../../infra/kafka/client.ts';
import { readRanges } from '../../infra/kafka/read-ranges.ts';
import { AppError } from '../../schemas/errors.ts';
import { topics } from '../../schemas/topics.ts';
import type { Topic } from '../../schemas/topics.ts';
import { createGroup } from './consumer-group.ts';
import type { BrokerWorld, ConsumerGroup } from './consumer-group.ts';
import type { SimProcess } from './process.ts';

export type SimKafka = Pick<
  Kafka,
  'consume' | 'offsets' | 'offsetsAt' | 'topicId' | 'publisher' | 'readRanges'
>;

/** The simulated log: partitions with unlimited retention, and consumer groups. */
export interface SimBroker {
  append(topic: Topic<unknown>, partition: number, key: string | null, value: Buffer): number;
  read(topic: Topic<unknown>, partition: number): readonly LogMessage[];
  /** Parsed values of all partitions of a topic, without unparseable ones. */
  messages<M>(topic: Topic<M>): M[];
  /** The Kafka client of one process. */
  client(process: SimProcess): SimKafka;
}

interface Pending {
  readonly topic: Topic<unknown>;
  readonly messages: readonly {
    readonly value: Buffer;
    readonly key?: string;
    readonly partition?: number;
  }[];
  resolve(offsets: { partition: number; offset: number }[]): void;
  reject(error: unknown): void;
}

export function createBroker(world: BrokerWorld): SimBroker {
  const { clock, random, count, trace } = world;
  const partitions = new Map<string, LogMessage[]>();
  const groups = new Map<string, ConsumerGroup>();

  const partitionOf = (topic: Topic<unknown>, partition: number): LogMessage[] => {
    const name = `${topic.name}:${partition}`;
    const log = partitions.get(name) ?? [];
    partitions.set(name, log);
    return log;
  };

  const append: SimBroker['append'] = (topic, partition, key, value) => {
    const messages = partitionOf(topic, partition);
    const offset = messages.length;
    messages.push({ topic: topic.name, partition, offset, key, value, timestamp: clock.now() });
    trace(
      `log ${topic.name}:${partition}:${offset} ${value.toString('latin1', 0, 190)} … ${value.toString('latin1', Math.max(190, value.length - 120))}`,
    );
    return offset;
  };

  /**
   * As infra/kafka/publisher.ts: one request in flight; calls made meanwhile share the next one. Messages to one partition
   * are stored all or none, but a request may reach only some partitions. Its own retries duplicate nothing; the caller's
   * do.
   */
  const createPublisher = (process: SimProcess): Publisher => {
    let queue: Pending[] = [];
    let isSending = false;
    let isClosed = false;

    const store = (batch: readonly Pending[], isReached: () => boolean): void => {
      const reached = new Map<string, boolean>();
      for (const pending of batch) {
        const { topic, messages } = pending;
        const offsets = [];
        for (const { value, key = null, partition = 0 } of messages) {
          const target = `${topic.name}:${partition}`;
          const isStored = reached.get(target) ?? isReached();
          reached.set(target, isStored);
          if (!isStored) continue;
          offsets.push({ partition, offset: append(topic, partition, key, value) });
        }
        pending.resolve(offsets);
      }
      if (new Set(reached.values()).size > 1) count('log: part of a request stored');
    };

    const send = async (): Promise<void> => {
      isSending = true;
      while (queue.length > 0) {
        const batch = queue.splice(0, 1 + random.below(queue.length));
        if (batch.length > 1) count('log: calls batched in one request');
        // Callers get results only when the request is answered.
        const answers: (() => void)[] = [];
        const deferred = batch.map((pending): Pending => ({
          ...pending,
          resolve: (offsets) => void answers.push(() => pending.resolve(offsets)),
        }));
        const names = [...new Set(batch.map(({ topic }) => topic.name))].join('+');
        // Only rows with a seq tolerate a message that is stored after its successors.
        const mayBeLate = batch.every(({ topic }) => topic.name === topics.chainBlocks.name);
        const arrive = async (): Promise<void> => {
          // A slow broker: calls made meanwhile share one request.
          if (random.chance(world.faultRates.slow / 2)) await clock.sleep(random.below(800));
          // A request to several partitions may reach only some of them.
          const targets = batch.flatMap(({ topic, messages }) =>
            messages.map(({ partition = 0 }) => `${topic.name}:${partition}`),
          );
          const isCut = world.faultRates.faults > 0 && new Set(targets).size > 1 && random.chance(400);
          store(deferred, () => !isCut || random.chance(500));
          if (isCut) throw unavailable();
        };
        try {
          await process.call('log', `publish ${names}`, arrive, { mayBeLate });
          for (const answer of answers) answer();
        } catch (error) {
          for (const pending of batch) pending.reject(error);
        }
      }
      isSending = false;
    };

    return {
      publish: (topic, messages) =>
        new Promise((resolve, reject) => {
          if (isClosed) throw new AppError('STORE_UNAVAILABLE', 'the publisher is closed');
          if (messages.length === 0) return resolve([]);
          const encoded = messages.map((message) => ({
            ...message,
            value: Buffer.from(JSON.stringify(message.value)),
          }));
          queue.push({ topic, messages: encoded, resolve, reject });
          if (!isSending) void send();
          return undefined;
        }),
      async close() {
        isClosed = true;
      },
    };
  };

  const broker: SimBroker = {
    append,
    read: partitionOf,
    messages<M>(topic: Topic<M>) {
      return Array.from({ length: topic.partitions }, (_, partition) => partitionOf(topic, partition))
        .flat()
        .flatMap(({ value }) => {
          const parsed = topic.schema.safeParse(jsonOf(value));
          return parsed.success ? [parsed.data] : [];
        });
    },
    client(process) {
      const offsetsOf = (topic: Topic<unknown>) =>
        Array.from({ length: topic.partitions }, (_, partition) => ({
          partition,
          low: 0,
          high: partitionOf(topic, partition).length,
        }));
      const consume: Kafka['consume'] = async (options) => {
        const [topic] = options.topics;
        if (topic === undefined) throw new TypeError('consumer without a topic');
        const group = groups.get(options.groupId) ?? createGroup(world, topic.partitions);
        groups.set(options.groupId, group);
        return await group.consume(process, topic, options, (partition) => partitionOf(topic, partition));
      };
      return {
        consume,
        offsets: (topic) => process.call('log', 'offsets', async () => offsetsOf(topic)),
        offsetsAt: (topic, timestamp) =>
          process.call('log', 'offsetsAt', async () =>
            offsetsOf(topic).map(({ partition, high }) => {
              const first = partitionOf(topic, partition).findIndex((one) => one.timestamp >= timestamp);
              return { partition, offset: first === -1 ? high : first };
            }),
          ),
        topicId: (topic) => process.call('log', 'topicId', async () => `id of ${topic.name}`),
        publisher: () => createPublisher(process),
        readRanges: (topic, ranges, signal) => readRanges(topic, ranges, consume, async () => {}, signal),
      };
    },
  };
  return broker;
}

function unavailable(): AppError {
  return new AppError('STORE_UNAVAILABLE', 'Kafka did not acknowledge', { retryable: true });
}
