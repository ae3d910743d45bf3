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
