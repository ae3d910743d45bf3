import { readFileSync } from 'node:fs';

import { z } from 'zod';

/**
 * Requests and answers of the service for the OpenAPI document. `npm run examples` records them from a running service
 * (`test/e2e/admin.test.ts`): lists are cut, and secrets and addresses of the machine are replaced.
 */
export const EXAMPLES_FILE = new URL('examples.json', import.meta.url);

export const examplesFile = z.object({
  /** By operation, status and media type; an answer that is not JSON is a string. */
  answers: z.record(z.string(), z.record(z.string(), z.record(z.string(), z.unknown()))),
  /** By operation: bodies of requests. */
  bodies: z.record(z.string(), z.unknown()),
  /** By status, then by name: bodies of errors, which all operations share. */
  errors: z.record(z.string(), z.record(z.string(), z.looseObject({ detail: z.string() }))),
});
export type Examples = z.infer<typeof examplesFile>;

export const examples: Examples = examplesFile.parse(JSON.parse(readFileSync(EXAMPLES_FILE, 'utf8')));
