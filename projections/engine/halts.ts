import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { LogMessage } from '../../infra/kafka/client.ts';
import { messageId } from '../../schemas/messages/quarantine.ts';
import type { QuarantineMessage } from '../../schemas/messages/quarantine.ts';
import { storable } from '../../schemas/text.ts';
import type { Build } from './builds.ts';

/** A poison message, which halts its partition, and the reason. */
export interface Halt {
  readonly message: LogMessage;
  readonly reason: string;
  /** True once it is recorded in PostgreSQL and in the quarantine. */
  announced: boolean;
}

/** Bytes of a poison message that are copied to the quarantine. */
const VALUE_BYTES = 65_536;

const skipRow = z.object({ projection: z.string() });

/** Records that these builds are halted at a message. `/readyz` shows it. */
export async function recordHalt(
  db: Sql,
  builds: readonly Build[],
  { message, reason }: Halt,
): Promise<void> {
  await db.query(
    `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
     SELECT projection, build, $3, $4, $5, $6 FROM unnest($1::text[], $2::int[]) AS h (projection, build)
     ON CONFLICT (projection, build, topic, partition)
     DO UPDATE SET message_offset = excluded.message_offset, reason = excluded.reason, halted_at = now()
     WHERE tds.projection_halts.message_offset <> excluded.message_offset`,
    [...parametersOf(builds, message), storable(reason)],
  );
}

/** Parameters of a statement about the halts of these builds. */
function parametersOf(builds: readonly Build[], { topic, partition, offset }: LogMessage): unknown[] {
  const names = builds.map(({ projection }) => projection);
  return [names, builds.map(({ build }) => build), topic, partition, offset];
}

/** True when an operator skipped the message for each of these projections. */
export async function isSkipped(db: Sql, builds: readonly Build[], message: LogMessage): Promise<boolean> {
  const skipped = await sqlRows(
    db,
    skipRow,
    'SELECT projection FROM tds.skips WHERE topic = $1 AND partition = $2 AND message_offset = $3',
    [message.topic, message.partition, message.offset],
  );
  const names = new Set(skipped.map(({ projection }) => projection));
  return builds.every(({ projection }) => names.has(projection));
}

/** False once an operator cleared the halt: the message is read again. */
export async function isHalted(db: Sql, builds: readonly Build[], message: LogMessage): Promise<boolean> {
  const halted = await sqlRows(
    db,
    skipRow,
    `SELECT projection FROM tds.projection_halts JOIN unnest($1::text[], $2::int[]) AS b (projection, build)
       USING (projection, build) WHERE topic = $3 AND partition = $4 AND message_offset = $5`,
    parametersOf(builds, message),
  );
  return halted.length > 0;
}

/** The quarantine's record of a message. Idempotent: its id is the message's partition and offset. */
export function messageQuarantined({ message, reason }: Halt, now: number): QuarantineMessage {
  return {
    type: 'message.quarantined',
    v: 1,
    id: messageId(message),
    reason,
    topic: message.topic,
    partition: message.partition,
    offset: String(message.offset),
    value: message.value.subarray(0, VALUE_BYTES).toString('base64'),
    quarantined_at: now,
  };
}
