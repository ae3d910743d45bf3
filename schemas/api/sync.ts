import { z } from 'zod';

import { errorBody, isoTimestamp } from './common.ts';

export const syncBlobAnswer = z
  .object({ version: z.int().min(1), blob: z.string(), last_modified: isoTimestamp })
  .meta({ id: 'SyncBlob' });

export const syncStoredAnswer = z.object({ version: z.int().min(1), status: z.literal('ok') });

/** The body of a 409: merge with the stored blob, then write a version above its own. */
export const syncConflictBody = errorBody
  .extend({
    error: z.literal('Version conflict'),
    server_version: z.int().min(1).meta({ description: 'Version of the stored blob' }),
  })
  .meta({ id: 'SyncConflict' });
