import { domainAndParents } from '../../infra/domains.ts';
import { nearestInForce } from '../../projections/catalogue/queries.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { DomainCheckAnswer } from '../../schemas/api/domains.ts';
import { iso } from '../http/times.ts';

/** How long a client may cache an answer, so how long a newly blacklisted site may still open. */
const VALIDITY_MS = 300_000;

/**
 * The verdict on a domain: its own entry, else that of its nearest listed parent. Similar names are not matched.
 *
 * @param domain normalized
 * @param now Unix milliseconds
 */
export async function checkDomain(
  db: Sql,
  schema: string,
  domain: string,
  now: number,
): Promise<DomainCheckAnswer> {
  const nearest = await nearestInForce(db, schema, domainAndParents(domain));
  const times = { checked_at: iso(now), expires_at: iso(now + VALIDITY_MS) };
  if (nearest === null || nearest.status === 'pending') return { ...noVerdict, domain, ...times };
  const { status, risk_level, category, reason, source } = nearest;
  return {
    domain,
    status,
    risk_level,
    category,
    reason,
    matched_domain: nearest.domain,
    match_type: nearest.domain === domain ? 'exact' : 'parent',
    source,
    ...times,
  };
}

const noVerdict = {
  status: 'unknown',
  risk_level: null,
  category: null,
  reason: null,
  matched_domain: null,
  match_type: 'none',
  source: null,
} as const;
