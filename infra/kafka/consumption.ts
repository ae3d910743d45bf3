import type kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';
import { sleep } from '../lifecycle.ts';
import { METADATA_MAX_AGE_MS, kafkaError } from './connection.ts';
import { framedSocket } from './framed-socket.ts';
import { endFetches } from './kafkajs-requests.ts';

export interface LogMessage {
  /** Name in `schemas/topics.ts`, without the prefix. */
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly key: string | null;
  readonly value: Buffer;
  /** Unix milliseconds: of the append for topics with `isStampedByBroker`, else of the producer. */
  readonly timestamp: number;
}

export interface LogBatch {
  readonly topic: string;
  readonly partition: number;
  /** Never empty; the first has the expected offset, and offsets ascend, each once. */
  readonly messages: readonly LogMessage[];
  /** The next offset to be written in this partition. */
  readonly highWatermark: number;
}

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** `abandoned`: the batch was not handled; nothing more of its partition is read until a seek or the next assignment. */
export type Handled = 'done' | 'abandoned';

export interface ConsumeOptions {
  readonly groupId: string;
  readonly topics: readonly Topic<unknown>[];
  /** Partitions to read; other assigned ones stay paused. Default: all. */
  readonly partitions?: readonly number[];
  /** Offset to read from; looked up for every assigned partition at every assignment. */
  startAt(topic: string, partition: number): Promise<number>;
  /** One batch at a time. Its error ends the consumption with `onCrash`. */
  onBatch(batch: LogBatch): Promise<Handled | void>;
  /** Called with partitions that are no longer assigned to this member. */
  onRevoked?(partitions: readonly TopicPartition[]): void;
  /** Called once, when reading cannot continue. */
  onCrash(error: unknown): void;
  /** Compressed bytes that a fetch waits for, at most a second (Kafka's `fetch.min.bytes`). Default: 1. */
  readonly minBytes?: number | undefined;
  /** Longest time that a fetch waits for messages. Default: 2 s, or a second with `minBytes`. */
  readonly maxWaitMs?: number | undefined;
}

export interface Consumption {
  stop(): Promise<void>;
  /** Continues reading a partition from another offset. */
  seek(topic: string, partition: number, offset: number): void;
  /** Commits the group's offset, which only shows lag in Kafka's tools. */
  commit(topic: string, partition: number, nextOffset: number): Promise<void>;
  assigned(): readonly TopicPartition[];
  /** Stops fetching a partition until a seek or the next assignment; a batch that is fetched may still come. */
  pause(topic: string, partition: number): void;
}

/**
 * Compressed bytes of one fetch; a larger record batch is fetched alone. Bounds what is decompressed at once: some 16 MB of
 * blocks, which compress to an eighth.
 */
const FETCH_BYTES = 2_000_000;
/**
 * An idle consumer asks each broker this often. A seek waits for the fetch under way. So does a stop at a broker from
 * which no partition is read: kafkajs waits there instead of asking it.
 */
const IDLE_WAIT_MS = 2000;
const BYTES_WAIT_MS = 1000;
/** Delay before the group is joined again after kafkajs has given up on an unavailable broker. */
const REJOIN_MS = 1000;
/**
 * Rejoins within a minute after a TypeError of kafkajs: a fetch that runs while the group rebalances reads the offsets of a
 * partition that the member has just lost (`offsetManager/index.js:nextOffset`). More are another defect.
 */
const MAX_DEFECTS = 10;
const DEFECT_MS = 60_000;
/** Longest time that `stop` waits for a join under way; the member then leaves the group in the background. */
const JOIN_GRACE_MS = 3000;

type Connect = (sockets: kafkajs.ISocketFactory) => Pick<kafkajs.Kafka, 'consumer'>;

/**
 * Reads topics as a member of a group, which only assigns partitions and shows lag: the caller says where to read from.
 *
 * @throws STORE_UNAVAILABLE where Kafka does not answer before the group is first joined
 */
export async function consume(
  connect: Connect,
  topicPrefix: string,
  options: ConsumeOptions,
): Promise<Consumption> {
  const consumption = new GroupConsumption(connect, topicPrefix, options);
  await consumption.start();
  return consumption;
}

class GroupConsumption implements Consumption {
  readonly #consumer: kafkajs.Consumer;
  readonly #options: ConsumeOptions;
  readonly #topicPrefix: string;
  /** By the name with the prefix. */
  readonly #topics: ReadonlyMap<string, Topic<unknown>>;
  /** Next offset of each assigned partition; a promise until `startAt` has answered. */
  #expected = new Map<string, Promise<number> | number>();
  /** Partitions with a seek since their last batch began. */
  readonly #sought = new Set<string>();
  readonly #paused = new Set<string>();
  /** Counts assignments: what began under an earlier one is dropped. */
  #generation = 0;
  /** Resolves when the group is joined, or the attempt has failed. */
  #joining: Promise<void> = Promise.resolve();
  #isRejoining = false;
  /** When kafkajs has ended with a TypeError within the last minute. */
  #defects: number[] = [];
  readonly #stopping = new AbortController();

  /** A function of its own, by which the connections of this consumer are found. */
  readonly #sockets: kafkajs.ISocketFactory = (options) => framedSocket(options);

  constructor(connect: Connect, topicPrefix: string, options: ConsumeOptions) {
    this.#options = options;
    this.#topicPrefix = topicPrefix;
    this.#topics = new Map(options.topics.map((topic) => [topicPrefix + topic.name, topic]));
    this.#consumer = connect(this.#sockets).consumer({
      groupId: topicPrefix + options.groupId,
      allowAutoTopicCreation: false,
      metadataMaxAge: METADATA_MAX_AGE_MS,
      // A killed member loses its partitions after this time; heartbeats continue during a batch.
      sessionTimeout: 12_000,
      rebalanceTimeout: 30_000,
      heartbeatInterval: 3000,
      maxWaitTimeInMs: options.maxWaitMs ?? (options.minBytes === undefined ? IDLE_WAIT_MS : BYTES_WAIT_MS),
      minBytes: options.minBytes ?? 1,
      maxBytes: FETCH_BYTES,
      maxBytesPerPartition: FETCH_BYTES,
      retry: {
        retries: 10,
        initialRetryTime: 100,
        maxRetryTime: 5000,
        // kafkajs cannot stop a join that it has begun by itself: the member would stay in the group.
        restartOnFailure: async () => {
          this.#isRejoining = !this.#stopping.signal.aborted;
          return false;
        },
      },
    });
  }

  async start(): Promise<void> {
    const consumer = this.#consumer;
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => this.#onAssigned(payload.memberAssignment));
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      // Errors of the handler do not arrive here.
      const isDefect = payload.error.cause instanceof TypeError && this.#isTolerated();
      if (this.#isRejoining || isDefect) this.#joining = this.#rejoin();
      else this.#crash(payload.error);
    });
    try {
      await consumer.connect();
      await consumer.subscribe({ topics: [...this.#topics.keys()], fromBeginning: true });
      await (this.#joining = this.#join());
    } catch (error) {
      await consumer.disconnect().catch(() => {});
      throw isUnavailable(error) ? kafkaError('Kafka is unavailable', error) : error;
    }
  }

  async #join(): Promise<void> {
    await this.#consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: 1,
      eachBatch: async (payload) => await this.#onFetched(payload),
    });
  }

  #isTolerated(): boolean {
    const now = Date.now();
    this.#defects = [...this.#defects.filter((at) => at > now - DEFECT_MS), now];
    return this.#defects.length <= MAX_DEFECTS;
  }

  async #rejoin(): Promise<void> {
    this.#isRejoining = false;
    await sleep(REJOIN_MS, this.#stopping.signal);
    if (!this.#stopping.signal.aborted) await this.#join().catch((error: unknown) => this.#crash(error));
  }

  #onAssigned(assignment: Readonly<Record<string, number[]>>): void {
    this.#generation += 1;
    const previous = this.#expected;
    this.#expected = new Map();
    for (const [fullName, partitions] of Object.entries(assignment)) {
      const topic = this.#topics.get(fullName);
      if (topic === undefined) continue;
      for (const partition of partitions) {
        if (this.#options.partitions?.includes(partition) ?? true) this.#open(topic.name, partition);
        else this.pause(topic.name, partition);
      }
    }
    const revoked = [...previous.keys()].filter((id) => !this.#expected.has(id));
    if (revoked.length > 0) this.#options.onRevoked?.(revoked.map(topicPartitionOf));
  }

  /** Looks up the start offset of an assigned partition; batches of it wait for that. */
  #open(topic: string, partition: number): void {
    const generation = this.#generation;
    this.#resumePaused(topic, partition);
    const start = this.#options.startAt(topic, partition);
    this.#expected.set(idOf(topic, partition), start);
    start.then(
      (offset) => {
        if (generation !== this.#generation || this.#stopping.signal.aborted) return;
        this.#expected.set(idOf(topic, partition), offset);
        this.#seek(topic, partition, offset);
      },
      (error: unknown) => this.#crash(error),
    );
  }

  /** The life of a batch: fetched, handled, then passed or abandoned. */
  async #onFetched(payload: kafkajs.EachBatchPayload): Promise<void> {
    const { batch } = payload;
    const topic = this.#topics.get(batch.topic);
    if (topic === undefined) return;
    const id = idOf(topic.name, batch.partition);
    const generation = this.#generation;
    const next = await this.#expected.get(id);
    // Fetched before the seek to the start offset.
    if (next === undefined || generation !== this.#generation || this.#stopping.signal.aborted) return;
    if (!payload.isRunning() || payload.isStale()) return;
    // The log had messages up to `next`; kafkajs has gone back to its beginning. New ones would reuse their offsets.
    if (Number(batch.highWatermark) < next) return this.#crash(messagesLost(id, next, batch.highWatermark));
    const messages = ascending(toLogMessages(topic.name, batch), next);
    const [first] = messages;
    const last = messages.at(-1);
    if (first === undefined || last === undefined) {
      payload.resolveOffset(batch.lastOffset());
      return;
    }
    if (first.offset !== next) return this.#crash(messagesDeleted(id, next, first.offset));

    this.#sought.delete(id);
    const handled = await this.#handle(payload, {
      topic: topic.name,
      partition: batch.partition,
      messages,
      highWatermark: Number(batch.highWatermark),
    });
    // What a seek or another assignment has decided meanwhile stands.
    if (handled === 'crashed' || generation !== this.#generation || this.#sought.has(id)) return;
    if (handled === 'abandoned') return this.pause(topic.name, batch.partition);
    this.#expected.set(id, last.offset + 1);
    payload.resolveOffset(String(last.offset));
    await payload.heartbeat();
  }

  async #handle(payload: kafkajs.EachBatchPayload, batch: LogBatch): Promise<Handled | 'crashed'> {
    const heartbeat = setInterval(() => void payload.heartbeat().catch(() => {}), 2000);
    try {
      return (await this.#options.onBatch(batch)) ?? 'done';
    } catch (error) {
      this.#crash(error);
      return 'crashed';
    } finally {
      clearInterval(heartbeat);
    }
  }

  #crash(error: unknown): void {
    if (this.#stopping.signal.aborted) return;
    this.#stopping.abort();
    this.#options.onCrash(error);
  }

  #resumePaused(topic: string, partition: number): void {
    if (this.#paused.delete(idOf(topic, partition)))
      this.#onGroup(() =>
        this.#consumer.resume([{ topic: this.#topicPrefix + topic, partitions: [partition] }]),
      );
  }

  #seek(topic: string, partition: number, offset: number): void {
    this.#onGroup(() =>
      this.#consumer.seek({ topic: this.#topicPrefix + topic, partition, offset: String(offset) }),
    );
  }

  /**
   * kafkajs drops the group when it crashes, before it emits CRASH. A command that comes in between is obsolete: the next
   * assignment sets offsets and pauses again.
   */
  #onGroup(command: () => void): void {
    try {
      command();
    } catch (error) {
      if (!String(error).includes('Consumer group was not initialized')) throw error;
    }
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    const left = this.#joining.then(() => {
      const disconnected = this.#consumer.disconnect();
      endFetches(this.#sockets);
      return disconnected;
    });
    left.catch(() => {});
    const grace = new AbortController();
    const hasJoined = this.#joining.then(() => true);
    const canLeave = await Promise.race([hasJoined, sleep(JOIN_GRACE_MS, grace.signal)]);
    grace.abort();
    if (canLeave === true) await left;
  }

  seek(topic: string, partition: number, offset: number): void {
    if (this.#stopping.signal.aborted) return;
    const id = idOf(topic, partition);
    this.#expected.set(id, offset);
    this.#sought.add(id);
    this.#resumePaused(topic, partition);
    this.#seek(topic, partition, offset);
  }

  async commit(topic: string, partition: number, nextOffset: number): Promise<void> {
    const offset = String(nextOffset);
    await this.#consumer.commitOffsets([{ topic: this.#topicPrefix + topic, partition, offset }]);
  }

  assigned(): readonly TopicPartition[] {
    return [...this.#expected.keys()].map(topicPartitionOf);
  }

  pause(topic: string, partition: number): void {
    this.#paused.add(idOf(topic, partition));
    this.#onGroup(() =>
      this.#consumer.pause([{ topic: this.#topicPrefix + topic, partitions: [partition] }]),
    );
  }
}

/** True for an error of kafkajs that ends by itself; its last retry does not say so. */
function isUnavailable(error: unknown): boolean {
  return (
    error instanceof Error &&
    (error.name === 'KafkaJSNumberOfRetriesExceeded' || ('retriable' in error && error.retriable === true))
  );
}

function messagesDeleted(id: string, expected: number, found: number): AppError {
  return new AppError(
    'CHECKPOINT_OUTSIDE_LOG',
    `${id}: expected offset ${expected}, but the log continues at ${found}: the messages in between were deleted`,
  );
}

function messagesLost(id: string, expected: number, end: string): AppError {
  return new AppError(
    'CHECKPOINT_OUTSIDE_LOG',
    `${id}: expected offset ${expected}, but the log ends at ${end}: Kafka has lost messages that it had acknowledged; see "Kafka" under "Roles and stores" in docs/operations.md`,
  );
}

function idOf(topic: string, partition: number): string {
  return `${topic}:${partition}`;
}

function topicPartitionOf(id: string): TopicPartition {
  const colon = id.lastIndexOf(':');
  return { topic: id.slice(0, colon), partition: Number(id.slice(colon + 1)) };
}

/**
 * The messages from `next` on, each offset once. Kafka's log may repeat offsets: on a full disk, an append fails when its entry
 * in the memory-mapped index cannot be written, but its records are in the file by then, and the recovery of the log keeps those
 * of every attempt. The first copy counts, as for Kafka's own consumers, so it does not matter where a fetch begins or ends.
 */
function ascending(messages: readonly LogMessage[], next: number): LogMessage[] {
  let expected = next;
  return messages.filter(({ offset }) => {
    if (offset < expected) return false;
    expected = offset + 1;
    return true;
  });
}

function toLogMessages(topic: string, batch: kafkajs.Batch): LogMessage[] {
  return batch.messages.map((message) => ({
    topic,
    partition: batch.partition,
    offset: Number(message.offset),
    key: message.key === null ? null : message.key.toString(),
    value: message.value ?? Buffer.alloc(0),
    timestamp: Number(message.timestamp),
  }));
}
