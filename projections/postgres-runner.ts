import type { Consumption, Kafka, LogBatch, LogMessage } from '../infra/kafka/client.ts';
import type { Logger } from '../infra/log.ts';
import { inTransaction } from '../infra/postgres/client.ts';
import type { Pool } from '../infra/postgres/client.ts';
import { openBuild } from './builds.ts';
import { describe, parseMessage } from './read-message.ts';
import { identifyLog, loadCheckpoints, moveCheckpoints } from './checkpoints.ts';
import type { PostgresProjection } from './define.ts';
import type { Halt } from './halts.ts';
import type { ProjectionMetrics } from './metrics.ts';
import { isAway, patience } from './persist.ts';
import type { ProjectionRun } from './runner.ts';
import { createWatch } from './watch.ts';

export interface PostgresProjectionOptions<M> {
  readonly kafka: Kafka;
  readonly pool: Pool;
  readonly projection: PostgresProjection<M>;
  readonly groupId: string;
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
}

interface Reading {
  readonly partition: number;
  /** The stored checkpoint, and so the next offset to fold. */
  next: number;
  halt: Halt | null;
}

interface Folding<M> {
  readonly message: M;
  readonly from: LogMessage;
}

/** Behind the head, so many messages share a transaction. */
const MESSAGES_PER_TRANSACTION = 500;

/** Outcomes of a transaction that are no error of the database. */
class Refused extends Error {}
class FoldFailed extends Error {
  readonly index: number;
  constructor(index: number, cause: unknown) {
    super(describe(cause), { cause });
    this.index = index;
  }
}

/**
 * Folds one topic in order. Rows and checkpoint move in one transaction, so every message is folded exactly once; the
 * checkpoint is moved first, which keeps a second process waiting and then sends it away.
 */
export async function runPostgresProjection<M>(
  options: PostgresProjectionOptions<M>,
): Promise<ProjectionRun> {
  const { kafka, pool, projection, log, metrics } = options;
  const { topic } = projection;
  const build = await openBuild(pool, null, projection);
  const schema = build.names['schema'] ?? '';
  const readings = new Map<number, Reading>();
  const consuming = Promise.withResolvers<Consumption>();
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  const abort = new AbortController();
  const fail = (error: unknown): void => {
    ending.reject(error);
    abort.abort(error);
  };
  const patiently = patience('postgres or kafka', isAway, { log, metrics, signal: abort.signal });

  const identity = await patiently(() => identifyLog(kafka, topic));

  const goOn = async ({ partition, next }: Reading): Promise<void> =>
    (await consuming.promise).seek(topic.name, partition, next);

  const open = async (partition: number): Promise<Reading> => {
    const stored = await patiently(() => loadCheckpoints(pool, kafka, identity, build));
    const reading: Reading = { partition, next: stored.get(partition) ?? 0, halt: null };
    readings.set(partition, reading);
    return reading;
  };

  const watch = createWatch<Reading>({
    kafka,
    pool,
    topic,
    log,
    metrics,
    builds: [build],
    readings: () => readings.values(),
    position: ({ next }) => next,
    concerned: () => [build],
    commit: async (partition, next) => await (await consuming.promise).commit(topic.name, partition, next),
    onError: fail,
    async resume(reading) {
      const { partition, next: expected } = reading;
      const next = expected + 1;
      const refused = await moveCheckpoints(pool, topic, [{ build, partition, expected, next }]);
      if (refused.length > 0) return await goOn(await open(partition));
      reading.next = next;
      reading.halt = null;
      await goOn(reading);
    },
  });

  /** One transaction: all of these messages or none. */
  const foldTogether = async (reading: Reading, batch: readonly Folding<M>[]): Promise<void> => {
    if (batch.length === 0) return;
    const { partition, next: expected } = reading;
    const next = expected + batch.length;
    await patiently(() =>
      inTransaction(pool, async (tx) => {
        const refused = await moveCheckpoints(tx, topic, [{ build, partition, expected, next }]);
        if (refused.length > 0) throw new Refused();
        for (const [index, { message, from }] of batch.entries()) {
          try {
            const { offset, timestamp } = from;
            await projection.fold(tx, message, { partition, offset, timestamp, schema });
          } catch (error) {
            if (isAway(error)) throw error;
            throw new FoldFailed(index, error);
          }
        }
        await notify(tx, batch);
      }),
    );
    reading.next = next;
    metrics.messages.inc({ projection: projection.name }, batch.length);
  };

  /** Delivered by Postgres when the transaction commits, and only then. */
  const notify = async (tx: Pick<Pool, 'query'>, batch: readonly Folding<M>[]): Promise<void> => {
    const { notify: told } = projection;
    if (told === undefined) return;
    const payloads = new Set(batch.map(({ message }) => told.payload(message)));
    await tx.query('SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS p (payload)', [
      told.channel,
      [...payloads],
    ]);
  };

  const halt = (reading: Reading, message: LogMessage, reason: string): void => {
    reading.halt = { message, reason, announced: false };
    watch.wake();
  };

  const onBatch = async ({ partition, messages, highWatermark }: LogBatch): Promise<void> => {
    const reading = readings.get(partition);
    if (reading === undefined || reading.halt !== null) return;
    watch.sawHead(partition, highWatermark);
    const wanted = messages.filter(({ offset }) => offset >= reading.next);
    if (wanted[0] !== undefined && wanted[0].offset > reading.next) return await goOn(reading);

    for (let at = 0; at < wanted.length; at += MESSAGES_PER_TRANSACTION) {
      const batch: Folding<M>[] = [];
      let poison: { message: LogMessage; reason: string } | null = null;
      for (const from of wanted.slice(at, at + MESSAGES_PER_TRANSACTION)) {
        const parsed = parseMessage(topic, from);
        if ('reason' in parsed) {
          poison = { message: from, reason: parsed.reason };
          break;
        }
        batch.push({ message: parsed.message, from });
      }
      try {
        await foldTogether(reading, batch);
      } catch (error) {
        if (error instanceof Refused) return await goOn(await open(partition));
        const culprit = error instanceof FoldFailed ? batch[error.index] : undefined;
        if (!(error instanceof FoldFailed) || culprit === undefined) throw error;
        await foldTogether(reading, batch.slice(0, error.index));
        poison = { message: culprit.from, reason: `folding failed: ${error.message}` };
      }
      if (poison !== null) return halt(reading, poison.message, poison.reason);
    }
  };

  await patiently(() => loadCheckpoints(pool, kafka, identity, build)); // a checkpoint outside the log is told now, by name
  const consumption = await kafka.consume({
    groupId: options.groupId,
    topics: [topic],
    startAt: async (_, partition) => (await open(partition)).next,
    onBatch,
    onRevoked: (parts) => parts.forEach(({ partition }) => readings.delete(partition)),
    onCrash: fail,
  });
  consuming.resolve(consumption);
  watch.start();
  log.info({ projection: build }, `projecting ${topic.name}`);

  return {
    done: ending.promise,
    async stop() {
      abort.abort(new Error('stopped'));
      await consumption.stop();
      await watch.stop();
      ending.resolve();
    },
  };
}
