import { z } from 'zod';

import {
  countReports,
  domainReportById,
  domainReportRow,
  listReports,
} from '../../projections/catalogue/queries.ts';
import { domainReportAnswer, domainReportListAnswer } from '../../schemas/api/domains.ts';
import { submitForCaller } from '../commands/submit-for-caller.ts';
import type { SubmitDeps } from '../commands/submit-for-caller.ts';
import { countedList } from '../http/counted-list.ts';
import { notFound } from '../http/errors.ts';
import { limit, page } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { idParams, reportedDomain } from './fields.ts';
import { presentReport } from './present.ts';

const createdReport = z.object({ report: domainReportRow });
const answerList = countedList(countReports, listReports, presentReport);

const common = { tag: 'Domains', auth: 'key' } as const;

/** Reports of the key's user; operators review them (`tds reports`). */
export function reportRoutes(deps: SubmitDeps): Route[] {
  return [listRoute(), reportRoute(deps), oneRoute()];
}

function listRoute(): Route {
  return defineRoute({
    id: 'listDomainReports',
    ...common,
    method: 'GET',
    path: '/api/dapps/domain-reports/',
    summary: "List the caller's reports",
    description: 'Newest first.',
    query: z.object({ page: page(), limit: limit() }),
    response: { 200: domainReportListAnswer },
    handler: async (context) => await answerList(context, { userId: context.key.userId }),
  });
}

function reportRoute(deps: SubmitDeps): Route {
  const submit = submitForCaller(deps);
  return defineRoute({
    id: 'reportDomain',
    ...common,
    method: 'POST',
    path: '/api/dapps/domain-reports/',
    summary: 'Report a domain',
    description: 'An operator reviews the report; until then the list is unchanged.',
    isIdempotent: true,
    body: reportedDomain,
    response: { 201: domainReportAnswer },
    location: '/api/dapps/domain-reports/{id}/',
    async handler({ input: { body }, key, request }) {
      const result = await submit(
        { id: key.userId },
        { type: 'domain.report', body: { user_id: key.userId, ...body } },
        { request, input: body },
      );
      return { status: 201, body: presentReport(createdReport.parse(result).report) };
    },
  });
}

function oneRoute(): Route {
  return defineRoute({
    id: 'getDomainReport',
    ...common,
    method: 'GET',
    path: '/api/dapps/domain-reports/{id}/',
    summary: "Get one of the caller's reports",
    description: 'Returns the report with its status; 404 for the reports of others.',
    params: idParams,
    response: { 200: domainReportAnswer },
    async handler({ input: { params }, key, served, pool }) {
      const stored = await domainReportById(pool, served.schema('catalogue'), params.id);
      if (stored?.user_id !== key.userId) throw notFound();
      return { status: 200, body: presentReport(stored) };
    },
  });
}
