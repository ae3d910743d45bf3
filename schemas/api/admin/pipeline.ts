import { z } from 'zod';

import { isoTimestamp } from '../common.ts';

const height = z.int().min(0).nullable();

export const pipelineStage = z
  .object({
    name: z.string().meta({ description: '`node`, `log`, the name of a projection, or `api`' }),
    kind: z.enum(['node', 'log', 'projection', 'api']),
    height: height.meta({
      description:
        'Highest block of this stage; null before the first block, and for projections that do not read chain.blocks',
    }),
    lag_blocks: height.meta({ description: 'Blocks behind the head of the node' }),
    lag_seconds: z.number().min(0).nullable().meta({
      description:
        'Age of the highest block while the stage is behind; 0 at the head; null while it is unknown',
    }),
    lag_messages: height.meta({
      description:
        'Messages of its topic that a projection has not processed; null while Kafka is unavailable',
    }),
    state: z.enum(['ok', 'behind', 'silent', 'stalled', 'halted', 'missing', 'unknown']).meta({
      description:
        '`behind`: has work left; `silent`: no heartbeat of its processes for 3 s; `stalled`: no progress for `STALL_SECONDS`, or no new block of the node for `HEAD_STALL_SECONDS`; `halted`: at a message that an operator must skip; `missing`: no process',
    }),
    detail: z.string().nullable(),
  })
  .meta({ id: 'PipelineStage' });
export type PipelineStage = z.infer<typeof pipelineStage>;

export const pipelineAlarm = z
  .object({
    kind: z.enum(['alarm', 'halt', 'role', 'redis']),
    name: z.string(),
    detail: z.string(),
    since: isoTimestamp.nullable(),
    meaning: z.string(),
    action: z.string().meta({ description: 'What an operator does about it' }),
  })
  .meta({ id: 'PipelineAlarm' });
export type PipelineAlarm = z.infer<typeof pipelineAlarm>;

const roleProcess = z.object({
  process: z.string().meta({ description: 'Host, process id and a random part' }),
  started_at: isoTimestamp,
  seen_at: isoTimestamp.meta({ description: 'Last heartbeat; one is due every second' }),
  state: z.enum(['live', 'late', 'silent', 'stopped']).meta({
    description: '`late`: no heartbeat for 3 s; `silent`: for 12 s; `stopped`: it has ended gracefully',
  }),
});

const pipelineRole = z.object({
  name: z.string(),
  state: z.enum(['working', 'stalled', 'missing']),
  since: isoTimestamp.nullable(),
  detail: z.string().nullable(),
  processes: z.array(roleProcess).meta({ description: 'Seen within the last hour' }),
});
export type PipelineRole = z.infer<typeof pipelineRole>;

const throughput = z.object({
  seconds: z.number().positive().meta({ description: 'The time over which the rates were measured' }),
  blocks_per_second: z.number().min(0),
  transfers_per_second: z.number().min(0),
});

export const pipelineAnswer = z
  .object({
    updated_at: isoTimestamp,
    log_available: z.boolean().meta({ description: 'False while Kafka is unavailable' }),
    l1_height: height,
    stages: z
      .array(pipelineStage)
      .meta({ description: 'In the order of the data: node, log, projections, API' }),
    alarms: z.array(pipelineAlarm),
    roles: z.array(pipelineRole),
    throughput: throughput.nullable().meta({
      description: 'Indexed during the last minute; null without measurements',
    }),
    repairs: z.object({ pending: z.int().min(0), oldest: isoTimestamp.nullable() }),
    quarantined: z.int().min(0).meta({ description: 'Open entries of the quarantine' }),
  })
  .meta({ id: 'Pipeline' });
export type PipelineAnswer = z.infer<typeof pipelineAnswer>;
