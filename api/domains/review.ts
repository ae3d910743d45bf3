import { z } from 'zod';

import { domainReportRow, listReports } from '../../projections/catalogue/queries.ts';
import type { DomainRecord, DomainReport } from '../../projections/catalogue/queries.ts';
import { accepted } from '../operator.ts';
import type { OperatorDeps } from '../operator.ts';

/** What operators do about reports of domains. */

const ACTOR = 'operator';
const reviewed = z.object({ report: domainReportRow });

/** Newest first. */
export async function reportsToReview(
  { pool, servedBuilds }: OperatorDeps,
  { status, limit }: { status: DomainReport['status'] | undefined; limit: number },
): Promise<DomainReport[]> {
  return await listReports(
    pool,
    (await servedBuilds()).schema('catalogue'),
    { status },
    { limit, offset: 0 },
  );
}

/**
 * Blacklists the domain of a report (`tds reports approve`). Throws NOT_FOUND, and CONFLICT where it was reviewed before,
 * or where the domain is whitelisted and that is not overridden.
 */
export async function approveReport(
  deps: OperatorDeps,
  id: number,
  options: { riskLevel: NonNullable<DomainRecord['risk_level']>; overridesWhitelist: boolean },
): Promise<DomainReport> {
  const result = await accepted(deps, {
    type: 'report.review',
    actor: ACTOR,
    body: {
      decision: 'approved',
      report_id: id,
      risk_level: options.riskLevel,
      overrides_whitelist: options.overridesWhitelist,
    },
  });
  return reviewed.parse(result).report;
}

/** Leaves the list as it is (`tds reports reject`). Throws NOT_FOUND, and CONFLICT where it was reviewed before. */
export async function rejectReport(deps: OperatorDeps, id: number): Promise<DomainReport> {
  const result = await accepted(deps, {
    type: 'report.review',
    actor: ACTOR,
    body: { decision: 'rejected', report_id: id },
  });
  return reviewed.parse(result).report;
}
