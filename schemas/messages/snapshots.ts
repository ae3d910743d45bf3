import { z } from 'zod';

import { unixMillis } from './common.ts';

const snapshot = {
  v: z.literal(1),
  /** Id of the snapshot; several may have been started, and only one closed. */
  id: z.string().min(1),
};

/** The state that results from `commands`: rows, then a manifest that closes them. Rows without a manifest are ignored. */
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
        /** Version of the projection. */
        version: z.int().positive(),
        /** Offset of `commands` at which to resume after this state. */
        next_offset: z.int().min(0),
        /** Number of rows by table, checked when the snapshot is read. */
        counts: z.record(z.string(), z.int().min(0)),
      }),
    ),
  }),
]);
export type SnapshotMessage = z.infer<typeof snapshotsMessage>;
export type SnapshotManifest = Extract<SnapshotMessage, { type: 'snapshot.closed' }>;
