import { pipelineAnswer } from '../../schemas/api/admin/pipeline.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { shareRecent } from '../http/share-recent.ts';
import type { Operator } from './operator.ts';

export interface PipelineRouteDeps {
  readonly operator: Operator;
  readonly indexedHeight: () => number | null;
  readonly areLimitsShared: () => Promise<boolean>;
}

/** Several consoles share what was read in the last half second. */
export const MAX_AGE_MS = 500;

export function pipelineRoutes({ operator, indexedHeight, areLimitsShared }: PipelineRouteDeps): Route[] {
  const read = shareRecent(
    async () =>
      await operator.pipeline({ indexedHeight: indexedHeight(), isRedisUp: await areLimitsShared() }),
    MAX_AGE_MS,
  );
  const pipeline = defineRoute({
    id: 'getPipeline',
    method: 'GET',
    path: '/api/admin/pipeline/',
    summary: 'Show the pipeline: heights, lags, alarms, roles and throughput',
    description: 'The same as `tds status`. Read at most twice a second.',
    tag: 'Administration',
    auth: 'admin',
    asOf: 'This route returns the current state.',
    response: { 200: pipelineAnswer },
    handler: async () => ({ status: 200, body: await read() }),
  });
  return [pipeline];
}
