import type { Operator } from '../../../api/admin/operator.ts';
import { readChunks } from './chunks.ts';
import { readHistory } from './history.ts';
import { readOperations } from './operation-log.ts';
import { readPipeline } from './pipeline.ts';
import { readProjections } from './projections.ts';
import { readPublicVerification } from './public-verification.ts';
import { findQuarantinePage, showQuarantineDetail } from './quarantine-answers.ts';
import { readRebuilding } from './rebuild-runs.ts';
import type { OperatorStores } from './status.ts';
import { readVerification } from './verify-runs.ts';

/** What the API's admins are shown, by the code of the `tds` commands. */
export function createOperator(stores: OperatorStores): Operator {
  const { pool } = stores;
  return {
    pipeline: async (api) => await readPipeline(stores, api),
    chunks: async () => await readChunks(stores),
    history: async (step, now) => await readHistory(pool, step, now),
    projections: async () => await readProjections(stores),
    rebuilding: async (projection) => await readRebuilding(pool, projection),
    quarantine: async (filter) => await findQuarantinePage(pool, filter),
    quarantined: async (id) => await showQuarantineDetail(pool, id),
    verification: async () => await readVerification(pool),
    publicVerification: async () => await readPublicVerification(stores),
    operations: async (id) => await readOperations(pool, id),
  };
}
