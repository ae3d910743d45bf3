import { z } from 'zod';

import { chunksAnswer } from '../../schemas/api/admin/chunks.ts';
import { historyAnswer } from '../../schemas/api/admin/history.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { shareRecent } from '../http/share-recent.ts';
import type { Operator } from './operator.ts';

export interface HistoryRouteDeps {
  readonly operator: Operator;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const STEPS = { '5s': 5, '1m': 60 } as const;
/** The map reads all ranges of heights. */
const MAX_AGE_MS = 2000;

export function historyRoutes(deps: HistoryRouteDeps): Route[] {
  return [historyRoute(deps), chunksRoute(deps)];
}

function historyRoute({ operator, now }: HistoryRouteDeps): Route {
  return defineRoute({
    id: 'getHistory',
    method: 'GET',
    path: '/api/admin/history/',
    summary: 'Get the history of lag and throughput',
    description:
      'The heights of `tds status` over time: of the last hour every 5 seconds, or of the last day every minute. The service keeps it in PostgreSQL.',
    tag: 'Administration',
    auth: 'admin',
    asOf: 'It is the state of the service, not of the chain.',
    query: z.object({
      step: z.enum(['5s', '1m'], { error: 'Must be 5s or 1m.' }).optional().meta({
        description: '`5s`, the default: the last hour every 5 seconds; `1m`: the last day every minute',
      }),
    }),
    response: { 200: historyAnswer },
    handler: async ({ input: { query } }) => ({
      status: 200,
      body: await operator.history(STEPS[query.step ?? '5s'], now()),
    }),
  });
}

function chunksRoute({ operator }: HistoryRouteDeps): Route {
  const read = shareRecent(async () => await operator.chunks(), MAX_AGE_MS);
  return defineRoute({
    id: 'getChunkMap',
    method: 'GET',
    path: '/api/admin/chunks/',
    summary: 'Get the map of indexed heights and of the chunks that are written',
    description: 'The chunks of `tds status`. Read at most every 2 s.',
    tag: 'Administration',
    auth: 'admin',
    asOf: 'This route returns the current progress.',
    response: { 200: chunksAnswer },
    handler: async () => ({ status: 200, body: await read() }),
  });
}
