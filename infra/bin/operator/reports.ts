import { z } from 'zod';

import { domainAndParents, isPublicSuffix } from '../../domains.ts';
import {
  domainReportById,
  domainReportRow,
  listReports,
  nearestInForce,
} from '../../../projections/catalogue/queries.ts';
import type { DomainRecord, DomainReport } from '../../../projections/catalogue/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { accepted } from './accounts.ts';
import type { OperatorDeps } from './accounts.ts';

/** What operators do about reports of domains. */

const ACTOR = 'operator';
const reviewed = z.object({ report: domainReportRow, stays: z.boolean().default(false) });

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
 * Blacklists the domain of a report (`tds reports approve`); `stays` where it was blacklisted before, and its entry is
 * left as it is unless that is overridden. Throws NOT_FOUND, and CONFLICT where it was reviewed before,
 * or where the domain, or the nearest listed one above it, is whitelisted, or is nobody's, and that is not overridden.
 */
export async function approveReport(
  deps: OperatorDeps,
  id: number,
  options: { riskLevel: NonNullable<DomainRecord['risk_level']>; overridesWhitelist: boolean },
): Promise<{ readonly domain: string; readonly stays: boolean }> {
  if (!options.overridesWhitelist) await assertNobodyElseIsMeant(deps, id);
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
  const { report, stays } = reviewed.parse(result);
  return { domain: report.domain, stays };
}

/** What may be wrong with a report though its domain is not listed itself; that, and a repeat, the decision sees. */
async function assertNobodyElseIsMeant({ pool, servedBuilds }: OperatorDeps, id: number): Promise<void> {
  const schema = (await servedBuilds()).schema('catalogue');
  const report = await domainReportById(pool, schema, id);
  if (report?.status !== 'pending') return;
  const { domain } = report;
  const allTheSame = '--force blacklists it all the same.';
  if (isPublicSuffix(domain)) {
    const why = 'is a public suffix: no check of a site below it goes by its entry';
    throw new AppError('CONFLICT', `${domain} ${why}; ${allTheSame}`);
  }
  const nearest = await nearestInForce(pool, schema, domainAndParents(domain).slice(1));
  if (nearest?.status !== 'whitelisted') return;
  throw new AppError('CONFLICT', `${nearest.domain}, above ${domain}, is whitelisted; ${allTheSame}`);
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
