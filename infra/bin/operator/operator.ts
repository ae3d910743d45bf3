import type { Operator } from '../../../api/admin/operator.ts';
import { readPipeline } from './pipeline.ts';
import type { OperatorStores } from './status.ts';

/** What the API's admins are shown, by the code of the `tds` commands. */
export function createOperator(stores: OperatorStores): Operator {
  return {
    pipeline: async (api) => await readPipeline(stores, api),
  };
}
