import type { Pool } from '../../../infra/postgres/client.ts';
import type { IngestStore } from '../ports.ts';
import { createChunkStore } from './chunks.ts';
import { createRecordedStore } from './recorded.ts';
import { createRepairStore } from './repairs.ts';
import { createStatements } from './sql.ts';

/** The ingester's state in Postgres (migrations/0010_ingest.sql). */
export function createIngestStore(pool: Pool): IngestStore {
  const statements = createStatements(pool);
  return {
    ...createChunkStore(statements),
    ...createRecordedStore(statements),
    ...createRepairStore(statements),
  };
}
