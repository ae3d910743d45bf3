import { z } from 'zod';

import type { Kafka } from '../kafka/client.ts';
import { sqlRows } from '../postgres/client.ts';
import type { Sql } from '../postgres/client.ts';
import { readConsumers } from './consumers.ts';
import type { Consumer } from './consumers.ts';
import { roleStates } from './role-states.ts';
import type { RoleState } from './role-states.ts';

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
const repairsRow = z.object({ pending: z.int(), oldest: z.date().nullable() });

export type ProjectionHalt = z.infer<typeof haltRow>;
export type Alarm = z.infer<typeof alarmRow>;

/** How far a projection has read one partition. */
export interface Lag extends Pick<Consumer, 'topic' | 'partition' | 'next_offset' | 'lag'> {
  readonly projection: string;
}

export interface ServiceHealth {
  /** Everything that reads the log; `lags` are those of projections. */
  readonly consumers: readonly Consumer[];
  readonly lags: readonly Lag[];
  readonly isLogAvailable: boolean;
  readonly roles: readonly RoleState[];
  readonly halts: readonly ProjectionHalt[];
  readonly alarms: readonly Alarm[];
  /** Blocks with a pending repair. */
  readonly repairs: z.infer<typeof repairsRow>;
}

/** The state of the whole service, from heartbeats, checkpoints, the ends of the log, halts and alarms. */
export async function serviceHealth(
  db: Sql,
  kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>,
  stallSeconds: number,
): Promise<ServiceHealth> {
  const [{ consumers, isLogAvailable }, halts, alarms, repairs] = await Promise.all([
    readConsumers(db, kafka, stallSeconds),
    projectionHalts(db),
    raisedAlarms(db),
    repairsLeft(db),
  ]);
  const roles = await roleStates(db, consumers, stallSeconds);
  const lags = consumers
    .filter(({ role }) => role === 'project')
    .map(({ consumer: projection, topic, partition, next_offset, lag }) => ({
      projection,
      topic,
      partition,
      next_offset,
      lag,
    }));
  return { consumers, lags, isLogAvailable, roles, halts, alarms, repairs };
}

/** Halts of served builds, and with `shadows` also those of shadow builds. */
export async function projectionHalts(
  db: Sql,
  { shadows }: { readonly shadows: boolean } = { shadows: false },
): Promise<ProjectionHalt[]> {
  return await sqlRows(
    db,
    haltRow,
    `SELECT projection, topic, partition, message_offset, reason, halted_at, state
     FROM tds.projection_halts JOIN tds.builds USING (projection, build)
     WHERE state = 'serving' OR ($1 AND state = 'building') ORDER BY projection, topic, partition`,
    [shadows],
  );
}

export async function raisedAlarms(db: Sql): Promise<Alarm[]> {
  return await sqlRows(db, alarmRow, 'SELECT name, detail, raised_at FROM tds.alarms ORDER BY name');
}

export async function repairsLeft(db: Sql): Promise<ServiceHealth['repairs']> {
  const [left] = await sqlRows(db, repairsRow, 'SELECT pending, oldest FROM tds.repairs_left');
  return left ?? { pending: 0, oldest: null };
}
