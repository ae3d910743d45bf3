import type { Operator } from '../../../api/admin/operator.ts';
import { findQuarantinePage, showQuarantineDetail } from './quarantine-answers.ts';
import { readChunks } from './chunks.ts';
import { readHistory } from './history.ts';
import { readOperations } from './operations.ts';
import { readRebuilding } from './rebuild-runs.ts';
import { readProjections } from './projections.ts';
import { readPipeline } from './pipeline.ts';
import { readVerification } from './verify-runs.ts';
import type { OperatorStores } from './status.ts';

/** What the API's admins are shown, by the code of the `tds` commands. */
export function createOperator(stores: OperatorStores): Operator {
  return {
    pipeline: async (api) => await readPipeline(stores, api),
    verification: async () => await readVerification(stores.pool),
    rebuilding: async (name) => await readRebuilding(stores.pool, name),
    operations: async (id) => await readOperations(stores.pool, id),
    history: async (step, now) => await readHistory(stores.pool, step, now),
    chunks: async () => await readChunks(stores),
    projections: async () => await readProjections(stores),
    quarantine: async (filter) => await findQuarantinePage(stores.pool, filter),
    quarantined: async (id) => await showQuarantineDetail(stores.pool, id),
  };
}
