import { z } from 'zod';

import { unixMillis } from './common.ts';

/** The state that `commands` had led to before an offset: rows, closed by a manifest. Without one it does not count. */
const snapshot = {
  v: z.literal(1),
  /** The next offset of `commands` after this state. */ next_offset: z.int().min(0),
};

export const snapshotsMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('snapshot.rows_written'),
    ...snapshot,
    table: z.string(),
    rows: z.array(z.record(z.string(), z.unknown())),
  }),
  z.object({
    type: z.literal('snapshot.closed'),
    ...snapshot,
    /** Version of the projection whose tables these are. */
    version: z.int().positive(),
    /** Rows by table, to be found again when the snapshot is read. */
    counts: z.record(z.string(), z.int().min(0)),
    closed_at: unixMillis,
  }),
]);
