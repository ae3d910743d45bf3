import { z } from 'zod';

import { domainStatus, reportStatus, riskLevel } from '../catalogue.ts';
import { envelopeOf, isoTimestamp } from './common.ts';

const domain = z.string().meta({
  description: 'Lowercase punycode without port, `www.` and trailing dot',
  example: 'app.example.org',
});
const category = z.string().meta({ description: 'Such as phishing, scam or malware; empty: unknown' });

export const domainAnswer = z
  .object({
    id: z.int(),
    domain,
    status: domainStatus.meta({ description: '`pending` entries have no effect' }),
    category,
    risk_level: riskLevel.nullable(),
    reason: z.string(),
    source: z.string().meta({ description: 'Origin of the entry; `report`: an approved report' }),
    evidence_url: z.string().meta({ description: 'URL; empty: none' }),
    active: z.boolean(),
    created_at: isoTimestamp,
    updated_at: isoTimestamp,
  })
  .meta({ id: 'Domain' });
export type DomainAnswer = z.infer<typeof domainAnswer>;

export const domainListAnswer = envelopeOf(domainAnswer);

export const domainCheckAnswer = z
  .object({
    domain,
    status: z.enum(['whitelisted', 'blacklisted', 'unknown']),
    risk_level: riskLevel.nullable(),
    category: z.string().nullable(),
    reason: z.string().nullable(),
    matched_domain: z.string().nullable().meta({ description: 'The listed domain that matched; null: none' }),
    match_type: z
      .enum(['exact', 'parent', 'none'])
      .meta({ description: '`parent`: a parent of the requested domain is listed' }),
    source: z.string().nullable(),
    checked_at: isoTimestamp,
    expires_at: isoTimestamp.meta({ description: 'When to check again' }),
  })
  .meta({ id: 'DomainCheck' });
export type DomainCheckAnswer = z.infer<typeof domainCheckAnswer>;

export const domainChangesAnswer = z
  .object({
    results: z.array(
      domainAnswer
        .extend({
          change: z.enum(['added', 'changed', 'removed']).meta({
            description:
              '`removed`: inactive or pending; `changed`: was already in force when `has_more` was last false; `added`: came into force since',
          }),
        })
        .meta({ id: 'DomainChange' }),
    ),
    next_since: z.string().meta({ description: '`since` for the next call' }),
    has_more: z.boolean().meta({ description: 'Whether more changes are available now' }),
  })
  .meta({ id: 'DomainChanges' });
export type DomainChangesAnswer = z.infer<typeof domainChangesAnswer>;

export const domainReportAnswer = z
  .object({
    id: z.int(),
    domain,
    category: z.string(),
    reason: z.string(),
    evidence: z.string().meta({ description: 'URL; empty: none' }),
    status: reportStatus,
    created_at: isoTimestamp,
    reviewed_at: isoTimestamp.nullable(),
  })
  .meta({ id: 'DomainReport' });
export type DomainReportAnswer = z.infer<typeof domainReportAnswer>;

export const domainReportListAnswer = envelopeOf(domainReportAnswer);
