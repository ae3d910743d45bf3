import { z } from 'zod';

import { isoTimestamp } from '../common.ts';

export const operationAnswer = z
  .object({
    id: z.string(),
    operation: z.enum([
      'quarantine.retry',
      'quarantine.skip',
      'rebuild.start',
      'rebuild.abort',
      'verify.start',
    ]),
    subject: z.string().meta({
      description: 'The id of an entry, or the name of a projection; `all` for a verification',
    }),
    state: z.enum(['requested', 'running', 'done', 'failed', 'interrupted']).meta({
      description:
        '`requested`: no process of `project` has begun it; `interrupted`: the process that ran it has ended, and another takes over',
    }),
    detail: z
      .string()
      .nullable()
      .meta({ description: 'What was done, as the command prints it, or why it failed' }),
    requested_by: z.string().meta({ description: '`user:<id>`' }),
    requested_at: isoTimestamp,
    finished_at: isoTimestamp.nullable(),
  })
  .meta({ id: 'Operation' });
export type OperationAnswer = z.infer<typeof operationAnswer>;

export const operationsAnswer = z.object({ results: z.array(operationAnswer) }).meta({ id: 'Operations' });
