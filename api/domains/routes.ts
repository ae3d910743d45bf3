import { z } from 'zod';

import { normalDomain } from '../../infra/domains.ts';
import { countDomains, domainById, listDomains } from '../../projections/catalogue/queries.ts';
import {
  domainAnswer,
  domainChangesAnswer,
  domainCheckAnswer,
  domainListAnswer,
} from '../../schemas/api/domains.ts';
import { domainStatus, riskLevel } from '../../schemas/catalogue.ts';
import { countedList } from '../http/counted-list.ts';
import { orNotFound } from '../http/errors.ts';
import { boolean, limit, page, text } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { domainChanges, since } from './changes.ts';
import { checkDomain } from './check.ts';
import { host, idParams } from './fields.ts';
import { presentDomain } from './present.ts';

export interface DomainRouteDeps {
  /** Unix milliseconds. */
  readonly now: () => number;
}

const common = { method: 'GET', tag: 'Domains', auth: 'key' } as const;
const pages = { page: page(), limit: limit() };
const answerList = countedList(countDomains, listDomains, presentDomain);

/** Domains listed by operators; callers' reports are in `report-routes.ts`. */
export function domainRoutes(deps: DomainRouteDeps): Route[] {
  return [listRoute(), blacklistRoute(), whitelistRoute(), changesRoute(), oneRoute(), checkRoute(deps)];
}

function listRoute(): Route {
  return defineRoute({
    id: 'listDomains',
    ...common,
    path: '/api/dapps/domains/',
    summary: 'List domains',
    description:
      'In the order in which they were first listed. Includes inactive domains unless `active` is given.',
    query: z.object({
      domain: host().optional(),
      status: domainStatus.optional(),
      category: text({ max: 100, description: 'Case-insensitive' }).optional(),
      risk_level: riskLevel.optional(),
      active: boolean().optional(),
      ...pages,
    }),
    response: { 200: domainListAnswer },
    async handler(context) {
      const { domain, status, category, risk_level: risk, active } = context.input.query;
      const filters = { domain, status, category: category?.toLowerCase(), riskLevel: risk, active };
      return await answerList(context, filters);
    },
  });
}

function blacklistRoute(): Route {
  return defineRoute({
    id: 'listBlacklistedDomains',
    ...common,
    path: '/api/dapps/domains/blacklist/',
    summary: 'List blacklisted domains',
    description: 'Active domains, in the order in which they were first listed.',
    query: z.object({
      search: text({
        max: 253,
        description: 'Part of a domain, or a whole domain in any spelling',
      }).optional(),
      ...pages,
    }),
    response: { 200: domainListAnswer },
    async handler(context) {
      const { search } = context.input.query;
      // Listed names are normalized: without `www.` and in ASCII.
      const part = search === undefined ? undefined : (normalDomain(search) ?? search.toLowerCase());
      return await answerList(context, { status: 'blacklisted', active: true, part });
    },
  });
}

function whitelistRoute(): Route {
  return defineRoute({
    id: 'listWhitelistedDomains',
    ...common,
    path: '/api/dapps/domains/whitelist/',
    summary: 'List whitelisted domains',
    description: 'Active domains, in the order in which they were first listed.',
    query: z.object(pages),
    response: { 200: domainListAnswer },
    handler: async (context) => await answerList(context, { status: 'whitelisted', active: true }),
  });
}

function changesRoute(): Route {
  return defineRoute({
    id: 'listDomainChanges',
    ...common,
    path: '/api/dapps/domains/changes/',
    summary: 'List changes, for clients that keep a copy of the list',
    description: [
      'Returns each domain that changed after `since` once, in its current state, sorted by the time of its last change.',
      'Upsert `added` and `changed` domains into the copy and delete `removed` ones if present; then continue from',
      '`next_since`. Concurrent writes cause no change to be skipped or repeated.',
    ].join(' '),
    query: z.object({ since: since().optional(), limit: limit({ fallback: 100, max: 1000 }) }),
    response: { 200: domainChangesAnswer },
    async handler({ input: { query }, served, pool }) {
      const body = await domainChanges(pool, served.schema('catalogue'), query.since, query.limit);
      return { status: 200, body };
    },
  });
}

function oneRoute(): Route {
  return defineRoute({
    id: 'getDomain',
    ...common,
    path: '/api/dapps/domains/{id}/',
    summary: 'Get a domain',
    description: '`/api/dapps/domains/` lists the ids.',
    params: idParams,
    response: { 200: domainAnswer },
    async handler({ input: { params }, served, pool }) {
      const record = orNotFound(await domainById(pool, served.schema('catalogue'), params.id));
      return { status: 200, body: presentDomain(record) };
    },
  });
}

function checkRoute({ now }: DomainRouteDeps): Route {
  return defineRoute({
    id: 'checkDomain',
    ...common,
    path: '/api/dapps/domain-check/',
    summary: 'Check a domain',
    description: [
      'Uses the entry of the domain itself, or else that of its nearest listed parent, up to the registrable domain. An entry',
      'of a public suffix such as co.uk or github.io does not apply to the domains below it. `www.` is ignored, inactive and',
      'pending entries have no effect, and similar names are not matched. The response may be cached for five minutes.',
    ].join(' '),
    query: z.object({ domain: host() }),
    response: { 200: domainCheckAnswer },
    async handler({ input: { query }, served, pool }) {
      return {
        status: 200,
        body: await checkDomain(pool, served.schema('catalogue'), query.domain, now()),
      };
    },
  });
}
