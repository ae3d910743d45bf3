import { z } from 'zod';

import { topics } from '../../schemas/topics.ts';
import type { Kafka } from '../kafka/client.ts';
import { sqlRows } from '../postgres/client.ts';
import type { Sql } from '../postgres/client.ts';

/** Progress, halts and alarms of the served builds, as stored in PostgreSQL. */

const checkpointRow = z.object({
  projection: z.string(),
  topic: z.string(),
  partition: z.number(),
  next_offset: z.number(),
});
const haltRow = z.object({
  projection: z.string(),
  topic: z.string(),
  partition: z.number(),
  message_offset: z.number(),
  reason: z.string(),
  halted_at: z.date(),
  /** State of the build. A halted shadow build keeps a rebuild from finishing, but affects no reader. */
  state: z.enum(['serving', 'building']),
});
const alarmRow = z.object({ name: z.string(), detail: z.string(), raised_at: z.date() });

/** Time-out of one store, after which the state is reported without it. */
export const STORE_WITHIN_MS = 1500;

export type Halt = z.infer<typeof haltRow>;
export type Alarm = z.infer<typeof alarmRow>;

export interface Lag extends z.infer<typeof checkpointRow> {
  /** Messages that the projection has not processed; null while Kafka is unavailable. */
  readonly lag: number | null;
}

/** By projection, topic and partition. Reads the checkpoints before the log, so that a lag is never negative. */
export async function projectionLags(
  db: Sql,
  kafka: Pick<Kafka, 'offsets'>,
): Promise<{ lags: Lag[]; logAnswers: boolean }> {
  const checkpoints = await sqlRows(
    db,
    checkpointRow,
    `SELECT projection, topic, partition, next_offset
     FROM tds.projection_checkpoints
     WHERE state = 'serving' ORDER BY projection, topic, partition`,
  );
  const heads = await withTimeout(
    highWatermarks(kafka, new Set(checkpoints.map(({ topic }) => topic))),
    STORE_WITHIN_MS,
    null,
  );
  const lags = checkpoints.map((place) => {
    const head = heads?.get(`${place.topic}:${place.partition}`);
    return { ...place, lag: head === undefined ? null : Math.max(0, head - place.next_offset) };
  });
  return { lags, logAnswers: heads !== null };
}

/** Next offset to be written, by `topic:partition`; null while Kafka is unavailable. */
async function highWatermarks(
  kafka: Pick<Kafka, 'offsets'>,
  names: ReadonlySet<string>,
): Promise<Map<string, number> | null> {
  try {
    const asked = Object.values(topics).filter(({ name }) => names.has(name));
    const found = await Promise.all(
      asked.map(async (topic) => (await kafka.offsets(topic)).map((place) => ({ ...place, topic }))),
    );
    return new Map(found.flat().map(({ topic, partition, high }) => [`${topic.name}:${partition}`, high]));
  } catch {
    return null;
  }
}

/** The result of `work`, or `late` after a time-out. */
export async function withTimeout<T>(work: Promise<T>, ms: number, late: T): Promise<T> {
  const timer = Promise.withResolvers<T>();
  const handle = setTimeout(() => timer.resolve(late), ms);
  try {
    return await Promise.race([work, timer.promise]);
  } finally {
    clearTimeout(handle);
  }
}

/** Halts of served builds, and with `shadows` also those of shadow builds. */
export async function projectionHalts(
  db: Sql,
  also: { readonly shadows: boolean } = { shadows: false },
): Promise<Halt[]> {
  return await sqlRows(
    db,
    haltRow,
    `SELECT projection, topic, partition, message_offset, reason, halted_at, state
     FROM tds.projection_halts JOIN tds.builds USING (projection, build)
     WHERE state = 'serving' OR ($1 AND state = 'building') ORDER BY projection, topic, partition`,
    [also.shadows],
  );
}

export async function raisedAlarms(db: Sql): Promise<Alarm[]> {
  return await sqlRows(db, alarmRow, 'SELECT name, detail, raised_at FROM tds.alarms ORDER BY name');
}

const repairsRow = z.object({ pending: z.int(), oldest: z.date().nullable() });

/** Blocks with a pending repair. */
export async function repairsLeft(db: Sql): Promise<z.infer<typeof repairsRow>> {
  const [left] = await sqlRows(db, repairsRow, 'SELECT pending, oldest FROM tds.repairs_left');
  return left ?? { pending: 0, oldest: null };
}
