import { z } from 'zod';

const refusal = z.looseObject({ code: z.enum(['NOT_FOUND', 'CONFLICT']), detail: z.string() });

/** What a projection decided about a command: the result of an accepted one, the reason of a refused one. */
export const commandOutcome = z.discriminatedUnion('accepted', [
  z.object({
    accepted: z.literal(true),
    request_hash: z.string().nullable(),
    result: z.record(z.string(), z.unknown()),
  }),
  z.object({ accepted: z.literal(false), request_hash: z.string().nullable(), result: refusal }),
]);
export type CommandOutcome = z.infer<typeof commandOutcome>;
