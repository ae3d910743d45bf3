import type { DomainRecord, DomainReport } from '../../projections/catalogue/queries.ts';
import type { DomainAnswer, DomainReportAnswer } from '../../schemas/api/domains.ts';
import { iso, isoOrNull } from '../http/times.ts';

export function presentDomain(record: DomainRecord): DomainAnswer {
  const { id, domain, status, category, risk_level, reason, source, evidence_url, active } = record;
  return {
    id,
    domain,
    status,
    category,
    risk_level,
    reason,
    source,
    evidence_url,
    active,
    created_at: iso(record.created_at),
    updated_at: iso(record.updated_at),
  };
}

/** Without the user, who is the caller. */
export function presentReport(report: DomainReport): DomainReportAnswer {
  const { id, domain, category, reason, evidence, status, created_at, reviewed_at } = report;
  return {
    id,
    domain,
    category,
    reason,
    evidence,
    status,
    created_at: iso(created_at),
    reviewed_at: isoOrNull(reviewed_at),
  };
}
