import { domainAndParents } from '../../infra/domains.ts';
import { nearestInForce } from '../../projections/catalogue/queries.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { DomainCheckAnswer } from '../../schemas/api/domains.ts';
import { iso } from '../http/times.ts';

/** So long a client may go by an answer. It bounds for how long a site that is listed now is still opened. */
const GOOD_FOR_MS = 300_000;

/**
 * What is said of a domain: by its own entry, else by that of its nearest parent that is listed. Nothing is guessed from
 * likeness.
 *
 * @param domain normal
 * @param now Unix milliseconds
 */
export async function checkDomain(
  db: Sql,
  schema: string,
  domain: string,
  now: number,
): Promise<DomainCheckAnswer> {
  const nearest = await nearestInForce(db, schema, domainAndParents(domain));
  const times = { checked_at: iso(now), expires_at: iso(now + GOOD_FOR_MS) };
  if (nearest === null || nearest.status === 'pending') return { ...nothingSaid, domain, ...times };
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

const nothingSaid = {
  status: 'unknown',
  risk_level: null,
  category: null,
  reason: null,
  matched_domain: null,
  match_type: 'none',
  source: null,
} as const;
