import { z } from 'zod';

import { topics } from '../schemas/topics.ts';
import type { Kafka } from './kafka/client.ts';
import { sqlRows } from './postgres/client.ts';
import type { Sql } from './postgres/client.ts';

/** What the served builds say of themselves: how far each has read, where one is halted, and what raised an alarm. */

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
  /** Of the build: a halt of one that is building keeps a rebuild from its end, and no reader waits for it. */
  state: z.enum(['serving', 'building']),
});
const alarmRow = z.object({ name: z.string(), detail: z.string(), raised_at: z.date() });

/** A store that does not answer by then is away, and the rest is told. */
export const STORE_WITHIN_MS = 1500;

export type Halt = z.infer<typeof haltRow>;
export type Alarm = z.infer<typeof alarmRow>;

export interface Lag extends z.infer<typeof checkpointRow> {
  /** Messages in the log that the projection has not finished with; null while the log does not answer. */
  readonly lag: number | null;
}

/** By projection, topic and partition. The log is asked after the table, so a lag is never negative by a race. */
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

/** Next offset to be written, by `topic:partition`; null while the log does not answer. */
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

/** What `work` gives, or `late` when it has not by then. */
export async function withTimeout<T>(work: Promise<T>, ms: number, late: T): Promise<T> {
  const timer = Promise.withResolvers<T>();
  const handle = setTimeout(() => timer.resolve(late), ms);
  try {
    return await Promise.race([work, timer.promise]);
  } finally {
    clearTimeout(handle);
  }
}

/** `also`: those of shadows, which a rebuild could not fill past a message. */
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

/** Blocks that are asked to be repaired and are not yet. */
export async function repairsLeft(db: Sql): Promise<z.infer<typeof repairsRow>> {
  const [left] = await sqlRows(db, repairsRow, 'SELECT pending, oldest FROM tds.repairs_left');
  return left ?? { pending: 0, oldest: null };
}
