import { projectionsAnswer } from '../../schemas/api/admin/projections.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { shareRecent } from '../http/share-recent.ts';
import type { Operator } from './operator.ts';

export interface ProjectionRouteDeps {
  readonly operator: Operator;
}

/** Counting the rows in PostgreSQL reads them. */
const MAX_AGE_MS = 2000;

export function projectionRoutes({ operator }: ProjectionRouteDeps): Route[] {
  const read = shareRecent(async () => await operator.projections(), MAX_AGE_MS);
  const list = defineRoute({
    id: 'listProjections',
    method: 'GET',
    path: '/api/admin/projections/',
    summary: 'List the projections with their builds, sizes and rebuilds',
    description: 'The same as `tds builds list`, with the progress of `tds rebuild`. Read at most every 2 s.',
    tag: 'Administration',
    auth: 'admin',
    asOf: 'This route returns the current state.',
    response: { 200: projectionsAnswer },
    handler: async () => ({ status: 200, body: await read() }),
  });
  return [list];
}
