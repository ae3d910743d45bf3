import { z } from 'zod';

import { isoTimestamp } from '../common.ts';

const count = z.int().min(0);

/** A run of `tds rebuild`: errors first, then what was compared, then how far it is. */
export const rebuildRun = z
  .object({
    id: z.string(),
    projections: z.array(z.string()),
    state: z.enum(['running', 'finished', 'failed', 'aborted', 'interrupted']).meta({
      description: '`interrupted`: its process was killed; the next run resumes it',
    }),
    error: z.string().nullable(),
    differences: count.meta({ description: 'Ranges in which the served tables differ from the log, so far' }),
    differing: z.array(
      z.object({ table: z.string(), where: z.string(), served_rows: count, rebuilt_rows: count }),
    ),
    rows_compared: count,
    phase: z.string().meta({ description: '`reading`, `comparing`, `waiting for writers` or `swapping`' }),
    messages_read: count,
    messages_total: count,
    messages_per_second: z.number().min(0).nullable(),
    seconds_left: count.nullable().meta({ description: 'Of `reading`; null in other phases' }),
    is_swapped: z.boolean(),
    is_aborting: z.boolean(),
    requested_by: z.string().meta({ description: '`operator` (tds), or `user:<id>` (this API)' }),
    started_at: isoTimestamp,
    updated_at: isoTimestamp,
    finished_at: isoTimestamp.nullable(),
  })
  .meta({ id: 'RebuildRun' });
export type RebuildRun = z.infer<typeof rebuildRun>;

const build = z.object({
  build: count,
  version: count,
  state: z.enum(['serving', 'building', 'retired']).meta({ description: '`building`: a shadow build' }),
  retired_at: isoTimestamp.nullable(),
  rows: count.meta({
    description:
      'Of all its tables; ClickHouse counts replaced rows until it merges them away, and more than a million rows of PostgreSQL are estimated',
  }),
  bytes: count.meta({ description: 'On disk, with indexes' }),
  tables: z.array(z.object({ table: z.string(), rows: count, bytes: count })),
});

export const projectionsAnswer = z
  .object({
    results: z.array(
      z.object({
        name: z.string(),
        store: z.enum(['clickhouse', 'postgres']),
        topic: z.string().nullable().meta({ description: 'null before its first checkpoint' }),
        state: z.enum(['ok', 'behind', 'silent', 'stalled', 'halted', 'missing', 'unknown']).meta({
          description: 'As in the pipeline',
        }),
        lag_messages: count.nullable(),
        builds: z.array(build).meta({ description: 'Oldest first' }),
        rebuild: rebuildRun.nullable().meta({ description: 'Its running rebuild, or its last one' }),
      }),
    ),
  })
  .meta({ id: 'Projections' });
export type ProjectionsAnswer = z.infer<typeof projectionsAnswer>;
