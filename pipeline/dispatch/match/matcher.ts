import type { Clock } from '../../../infra/clock.ts';
import type { Consumption, Kafka, LogBatch, LogMessage } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { inTransaction, isTableMissing } from '../../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../../infra/postgres/client.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { jsonOf } from '../../log-reading.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { createAlarms } from '../../observe/alarms.ts';
import type { DispatchMetrics } from '../metrics.ts';
import { createPausedPartitions } from './paused-partitions.ts';
import type { Blocked } from './paused-partitions.ts';
import { beginAt, movePosition, readPosition } from './positions.ts';
import type { Place } from './positions.ts';

/** A process that stands still for so long in a transaction lets go of what others wait for. */
const IDLE_MS = 10_000;

/**
 * What a message makes: done in the transaction that moves the position past it. It looks up what is served by itself: done
 * again, it may be another.
 */
export type Plan = (tx: PoolClient) => Promise<void>;

/**
 * What a matcher makes of each message of a batch; null: nothing. It rejects once the dispatcher stops while it waits:
 * then the batch is abandoned, and whoever reads on begins with this message.
 */
export type Match<M> = (message: M, place: LogMessage) => Promise<Plan | Blocked | null>;

/** Finds out whom the messages of a topic concern. */
export interface Matcher<M> {
  /** Names its positions and its consumer group: a renamed one begins anew. */
  readonly name: string;
  readonly topic: Topic<M>;
  /** Compressed bytes of one fetch. */
  readonly fetchBytes: number;
  /** Unix milliseconds: where no position is known, reading begins with what was said then; null: with what comes. */
  since(): Promise<number | null>;
  /** Messages that are looked at side by side; 1 where what one makes depends on what the one before it made. */
  readonly atOnce: number;
  /** Called for every batch: who waits for what may have changed. Null: nobody for anything. */
  open(): Promise<{ wants(message: LogMessage): boolean; readonly match: Match<M> } | null>;
}

export interface MatcherDeps {
  readonly kafka: Kafka;
  readonly pool: Pool;
  readonly log: Logger;
  readonly metrics: DispatchMetrics;
  readonly clock: Clock;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  /** Fires when the dispatcher stops. */
  readonly signal: AbortSignal;
  /** Deliveries may have been made. */
  readonly onMatched: () => void;
}

/** What becomes of each item, in their order; so many are worked on side by side. */
export async function* inOrder<I, R>(
  items: readonly I[],
  atOnce: number,
  work: (item: I) => Promise<R>,
): AsyncGenerator<readonly [item: I, result: R]> {
  const begun: (readonly [I, Promise<R>])[] = [];
  for (const [done, item] of items.entries()) {
    for (const next of items.slice(done + begun.length, done + atOnce)) {
      const working = work(next);
      // Who no longer asks hears of no error.
      working.catch(() => {});
      begun.push([next, working]);
    }
    const [, result] = begun.shift() ?? [item, work(item)];
    yield [item, await result];
  }
}

/**
 * Reads a topic and makes deliveries of it. Each message's deliveries and the position behind it are one transaction: a
 * crash makes them once, and of two processes that read one partition the later one is sent away.
 *
 * A message that is blocked by a projection pauses its partition there: the position stays before it, the other partitions
 * go on, and the partition is read on from the position once the message is projected.
 */
export async function runMatcher<M>(
  matcher: Matcher<M>,
  deps: MatcherDeps,
  onFatal: (error: unknown) => void,
): Promise<{ stop(): Promise<void> }> {
  const { kafka, pool, log, metrics, retryWhileUnavailable, signal, onMatched } = deps;
  const { name, topic } = matcher;
  const topicId = await retryWhileUnavailable(() => kafka.topicId(topic));
  const consuming = Promise.withResolvers<Consumption>();
  const placeOf = (partition: number): Place => ({ matcher: name, topic: topic.name, topicId, partition });

  const paused = createPausedPartitions({
    ...deps,
    matcher: name,
    topic: topic.name,
    alarms: createAlarms(pool),
    onFatal,
    async resume(partition) {
      const next = await startAt(partition);
      const consumption = await consuming.promise;
      consumption.seek(topic.name, partition, next);
      consumption.resume(topic.name, partition);
    },
  });

  async function startAt(partition: number): Promise<number> {
    const place = placeOf(partition);
    const known = await retryWhileUnavailable(() => readPosition(pool, place));
    const range = (await retryWhileUnavailable(() => kafka.offsets(topic))).find(
      (one) => one.partition === partition,
    );
    const { low, high } = range ?? { low: 0, high: 0 };
    if (known !== null && known >= low && known <= high) return known;
    if (known !== null) {
      log.error(
        { matcher: name, partition, known, low, high },
        'the position lies outside the log; what lay between is not sent',
      );
      await retryWhileUnavailable(() =>
        movePosition(pool, place, known, Math.min(Math.max(known, low), high)),
      );
      return await startAt(partition);
    }
    const since = await retryWhileUnavailable(() => matcher.since());
    const offsets = since === null ? [] : await retryWhileUnavailable(() => kafka.offsetsAt(topic, since));
    const first = offsets.find((one) => one.partition === partition)?.offset ?? high;
    // Two processes may say so at once: the one that was first has said it.
    await retryWhileUnavailable(() => beginAt(pool, place, Math.min(Math.max(first, low), high)));
    return await startAt(partition);
  }

  async function read({ partition, offset, value }: LogMessage): Promise<M | null> {
    const parsed = topic.schema.safeParse(jsonOf(value));
    if (parsed.success) return parsed.data;
    // The projections halt at it and keep it; the deliveries of all that comes after are not held up.
    log.error({ matcher: name, partition, offset }, 'passed over a message that cannot be read');
    metrics.unreadable.inc({ topic: topic.name });
    return null;
  }

  async function onBatch(batch: LogBatch): Promise<void> {
    // What was fetched before the pause comes again after it.
    if (signal.aborted || paused.has(batch.partition)) return;
    try {
      await matchBatch(batch);
    } catch (error) {
      if (!signal.aborted) throw error;
      log.info({ matcher: name, partition: batch.partition }, 'batch abandoned: the dispatcher stops');
    }
  }

  async function matchBatch({ partition, messages, highWatermark }: LogBatch): Promise<void> {
    const place = placeOf(partition);
    let opened = await retryWhileUnavailable(() => matcher.open());
    let position = messages[0]?.offset ?? 0;
    // As of the fetch: a batch can take long, and what comes meanwhile is counted with the next one.
    const tellBehind = (next: number): void =>
      metrics.position.set({ matcher: name, partition }, Math.max(0, highWatermark - next));
    tellBehind(position);
    const moveTo = async (next: number, plan: Plan): Promise<boolean> => {
      const moved = await retryWhileUnavailable(() =>
        inTransaction(
          pool,
          async (tx) => {
            if (!(await movePosition(tx, place, position, next))) return false;
            await plan(tx);
            return true;
          },
          { idleMs: IDLE_MS },
        ),
      );
      if (moved) position = next;
      return moved;
    };
    const look = async (message: LogMessage): Promise<Plan | Blocked | null> => {
      if (opened?.wants(message) !== true) return null;
      const value = await read(message);
      if (value === null) return null;
      return await retryWhileUnavailable(async () => {
        try {
          return (await opened?.match(value, message)) ?? null;
        } catch (error) {
          if (isTableMissing(error)) opened = await matcher.open();
          throw error;
        }
      });
    };
    let isOurs = true;
    let blocked: Blocked | null = null;
    for await (const [message, found] of inOrder(messages, matcher.atOnce, look)) {
      if (typeof found === 'function') {
        isOurs = await moveTo(message.offset + 1, found);
        if (!isOurs) break;
        onMatched();
      } else if (found !== null) {
        blocked = found;
        break;
      }
      tellBehind(message.offset + 1);
    }
    const end = blocked?.offset ?? (messages.at(-1)?.offset ?? 0) + 1;
    if (isOurs && position < end) isOurs = await moveTo(end, async () => {});
    if (!isOurs) {
      log.warn({ matcher: name, partition }, 'another process has read on; going on behind it');
      (await consuming.promise).seek(topic.name, partition, await startAt(partition));
    } else if (blocked !== null) {
      (await consuming.promise).pause(topic.name, partition);
      paused.pause(partition, blocked);
    }
  }

  const consumption = await kafka.consume({
    groupId: `dispatch-${name}`,
    topics: [topic],
    fetchBytes: matcher.fetchBytes,
    async startAt(_, partition) {
      await paused.clearAlarm(partition);
      return await startAt(partition);
    },
    onBatch,
    // Another member reads them; when they come back they are read from the position.
    onRevoked: (partitions) =>
      void consuming.promise.then((consumption) => {
        for (const { partition } of partitions) {
          paused.forget(partition);
          consumption.resume(topic.name, partition);
        }
      }),
    onCrash: onFatal,
  });
  consuming.resolve(consumption);
  return {
    async stop() {
      await Promise.all([consumption.stop(), paused.stop()]);
    },
  };
}
