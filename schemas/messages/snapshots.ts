import { z } from 'zod';

import { unixMillis } from './common.ts';

const snapshot = {
  v: z.literal(1),
  /** Of the snapshot: two of them may have been begun, and only one closed. */
  id: z.string().min(1),
};

/** The state that `commands` had led to: rows, closed by a manifest. Without one they do not count. */
export const snapshotsMessage = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('snapshot.rows_written'),
    ...snapshot,
    projection: z.string(),
    table: z.string(),
    rows: z.array(z.record(z.string(), z.unknown())),
  }),
  z.object({
    type: z.literal('snapshot.closed'),
    ...snapshot,
    closed_at: unixMillis,
    projections: z.array(
      z.object({
        name: z.string(),
        /** Of the projection whose tables these are. */
        version: z.int().positive(),
        /** The next offset of `commands` after this state. */
        next_offset: z.int().min(0),
        /** Rows by table, to be found again when the snapshot is read. */
        counts: z.record(z.string(), z.int().min(0)),
      }),
    ),
  }),
]);
export type SnapshotMessage = z.infer<typeof snapshotsMessage>;
export type SnapshotManifest = Extract<SnapshotMessage, { type: 'snapshot.closed' }>;
