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

/** Operators' review of domain reports. */

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
 * Blacklists the domain of a report (`tds reports approve`); `stays` if it already was, and its entry is unchanged unless
 * overridden. Throws NOT_FOUND; CONFLICT if the report was already reviewed, or, unless overridden, if the domain or its
 * nearest listed parent is whitelisted or the domain is a public suffix.
 */
export async function approveReport(
  deps: OperatorDeps,
  id: number,
  options: { riskLevel: NonNullable<DomainRecord['risk_level']>; overridesWhitelist: boolean },
): Promise<{ readonly domain: string; readonly stays: boolean }> {
  if (!options.overridesWhitelist) await assertNoConflictingParent(deps, id);
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

/** Checks parents of the domain; the decision checks the domain itself and repeats. */
async function assertNoConflictingParent({ pool, servedBuilds }: OperatorDeps, id: number): Promise<void> {
  const schema = (await servedBuilds()).schema('catalogue');
  const report = await domainReportById(pool, schema, id);
  if (report?.status !== 'pending') return;
  const { domain } = report;
  const hint = 'use --force to blacklist it anyway.';
  if (isPublicSuffix(domain)) {
    const why = 'is a public suffix: its entry does not apply to sites below it';
    throw new AppError('CONFLICT', `${domain} ${why}; ${hint}`);
  }
  const nearest = await nearestInForce(pool, schema, domainAndParents(domain).slice(1));
  if (nearest?.status !== 'whitelisted') return;
  throw new AppError('CONFLICT', `${nearest.domain}, above ${domain}, is whitelisted; ${hint}`);
}

/** Rejects a report (`tds reports reject`); the list is unchanged. Throws NOT_FOUND, and CONFLICT if already reviewed. */
export async function rejectReport(deps: OperatorDeps, id: number): Promise<DomainReport> {
  const result = await accepted(deps, {
    type: 'report.review',
    actor: ACTOR,
    body: { decision: 'rejected', report_id: id },
  });
  return reviewed.parse(result).report;
}
