import { z } from 'zod';

import { isoTimestamp } from './common.ts';

export const syncBlobAnswer = z
  .object({ version: z.int().min(1), blob: z.string(), last_modified: isoTimestamp })
  .meta({ id: 'SyncBlob' });

export const syncStoredAnswer = z.object({ version: z.int().min(1), status: z.literal('ok') });
