import { z } from 'zod';

import { isoTimestamp } from './common.ts';

export const loginAnswer = z
  .object({
    token: z.string().meta({ description: 'Session token, sent as `Authorization: Bearer <token>`' }),
    token_type: z.literal('Bearer'),
    expires_at: isoTimestamp,
    user: z.object({ id: z.int(), username: z.string(), email: z.string().nullable() }),
  })
  .meta({ id: 'Session' });

/** A key in a list. */
export const listedKeyAnswer = z
  .object({
    id: z.int(),
    name: z.string(),
    created_at: isoTimestamp,
    last_used_at: isoTimestamp.nullable(),
  })
  .meta({ id: 'ApiKey' });

export const createdKeyAnswer = z
  .object({
    id: z.int(),
    name: z.string(),
    key: z.string().meta({ description: 'The full key, shown only here' }),
    prefix: z.string().meta({ description: 'The first characters of the key, to identify it' }),
    created_at: isoTimestamp,
    last_used_at: z.null(),
    allowed_origins: z.array(z.string()),
    allowed_ips: z.array(z.string()),
    rate_limit_per_hour: z.int().nullable(),
    expires_at: isoTimestamp.nullable(),
  })
  .meta({ id: 'CreatedApiKey' });

/** A key with its restrictions. */
export const keyAnswer = createdKeyAnswer
  .omit({ key: true })
  .extend({ last_used_at: isoTimestamp.nullable() })
  .meta({ id: 'RestrictedApiKey' });
export type KeyAnswer = z.infer<typeof keyAnswer>;

export const keyUsageAnswer = z.object({
  success: z.literal(true),
  id: z.int(),
  start_time: isoTimestamp,
  end_time: isoTimestamp,
  total_calls: z.int().min(0),
  data: z.array(
    z
      .object({
        hour: isoTimestamp.meta({ description: 'Start of the hour' }),
        calls: z.int().min(0),
        successful_calls: z
          .int()
          .min(0)
          .meta({ description: 'Calls that count against `rate_limit_per_hour`' }),
      })
      .meta({ id: 'UsedHour' }),
  ),
});

export const doneAnswer = z.object({ success: z.literal(true), detail: z.string() }).meta({ id: 'Done' });
