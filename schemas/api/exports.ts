import { z } from 'zod';

import { canonicalHex } from './values.ts';

/** State of an export. The last three are null until it is complete. */
export const exportRecord = z
  .object({
    id: z.uuid(),
    format: z.enum(['csv', 'ndjson', 'parquet', 'arrow']),
    block: z.int().min(0).meta({ description: 'The newest height when the export began' }),
    block_hash: canonicalHex,
    rows: z.int().min(0).nullable(),
    sha256: z
      .string()
      .nullable()
      .meta({ description: 'Hexadecimal SHA-256 of the file, before any content coding' }),
    bytes: z.int().min(0).nullable().meta({ description: 'Size of the file, before any content coding' }),
    complete: z.boolean(),
  })
  .meta({ id: 'Export' });
export type ExportRecord = z.infer<typeof exportRecord>;

/** A Parquet file of all transfers of some heights, all accepted on L1. It never changes. */
const exportFile = z
  .object({
    url: z.string().meta({ description: 'Relative to the manifest' }),
    from_block: z.int().min(0),
    to_block: z.int().min(0),
    rows: z.int().min(0),
    bytes: z.int().min(0),
    sha256: z.string().meta({ description: 'Hexadecimal' }),
  })
  .meta({ id: 'ExportFile' });
export type ExportFile = z.infer<typeof exportFile>;

/** The files that `tds export build` has written, lowest heights first. */
export const exportManifest = z
  .object({ heights: z.int().min(1).meta({ description: 'Heights of a file' }), files: z.array(exportFile) })
  .meta({ id: 'ExportManifest' });
export type ExportManifest = z.infer<typeof exportManifest>;
