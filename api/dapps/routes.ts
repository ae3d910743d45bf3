import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import {
  categoryBySlug,
  countCategories,
  countDapps,
  dappBySlug,
  listCategories,
  listDapps,
} from '../../projections/catalogue/queries.ts';
import type { Category } from '../../projections/catalogue/queries.ts';
import {
  categoryAnswer,
  categoryListAnswer,
  dappAnswer,
  dappListAnswer,
  discoverAnswer,
} from '../../schemas/api/directory.ts';
import { countedList } from '../http/counted-list.ts';
import { envelope, resolvePage } from '../http/envelope.ts';
import { orNotFound } from '../http/errors.ts';
import { boolean, limit, networkFilter, page, text } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { presentDapp } from './present.ts';

/** dApps per group of `/discover/`. */
const MAX_DISCOVERED = 10;

const bySlug = z.object({ slug: text({ max: 100 }) });
const network = networkFilter().optional();
const answerList = countedList(countDapps, listDapps, presentDapp);

const common = { method: 'GET', tag: 'dApps', auth: 'key' } as const;

/** The directory of active dApps. */
export function dappRoutes(): Route[] {
  return [
    categoriesRoute(),
    categoryRoute(),
    listRoute(),
    searchRoute(),
    oneRoute(),
    discoverRoute(),
    ofCategoryRoute(),
  ];
}

function categoriesRoute(): Route {
  return defineRoute({
    id: 'listCategories',
    ...common,
    path: '/api/dapps/categories/',
    summary: 'List the categories of dApps',
    description: 'Sorted by name.',
    query: z.object({ page: page(), limit: limit() }),
    response: { 200: categoryListAnswer },
    async handler({ input: { query }, served, request, pool }) {
      const schema = served.schema('catalogue');
      const count = await countCategories(pool, schema);
      const found = resolvePage(query.page, query.limit, count);
      const results = await listCategories(pool, schema, found);
      return { status: 200, body: envelope(results, found, { query: request.query, count }) };
    },
  });
}

function categoryRoute(): Route {
  return defineRoute({
    id: 'getCategory',
    ...common,
    path: '/api/dapps/categories/{slug}/',
    summary: 'Get a category',
    description: '`/api/dapps/categories/` lists the slugs.',
    params: bySlug,
    response: { 200: categoryAnswer },
    async handler({ input: { params }, served, pool }) {
      return { status: 200, body: await findCategory(pool, served, params.slug) };
    },
  });
}

function listRoute(): Route {
  return defineRoute({
    id: 'listDapps',
    ...common,
    path: '/api/dapps/apps/',
    summary: 'List dApps',
    description: 'Sorted by match with `q`, best first, then featured dApps first, then by name.',
    query: z.object({
      category: text({ max: 100, description: 'Slug of a category' }).optional(),
      network,
      tag: text({ max: 100, description: 'A tag, case-insensitive' }).optional(),
      featured: boolean().optional(),
      verified: boolean().optional(),
      q: text({
        max: 200,
        description:
          'Words of the name, tags or description, matched by English word stem, the last one also as a prefix; or any part of the name',
      }).optional(),
      page: page(),
      limit: limit(),
    }),
    response: { 200: dappListAnswer },
    async handler(context) {
      const { q, category: slug, network: on, tag, featured, verified } = context.input.query;
      return await answerList(context, { category: slug, network: on, tag, featured, verified, text: q });
    },
  });
}

function searchRoute(): Route {
  return defineRoute({
    id: 'searchDapps',
    ...common,
    path: '/api/dapps/apps/search/',
    summary: 'Search dApps',
    description: 'Best match first.',
    query: z.object({
      q: text({ min: 2, max: 200, isTrimmed: true, description: 'As `q` in the list of dApps' }),
      page: page(),
      limit: limit(),
    }),
    response: { 200: dappListAnswer },
    handler: async (context) => await answerList(context, { text: context.input.query.q }),
  });
}

function oneRoute(): Route {
  return defineRoute({
    id: 'getDapp',
    ...common,
    path: '/api/dapps/apps/{slug}/',
    summary: 'Get a dApp',
    description: '`/api/dapps/apps/` lists the slugs.',
    params: bySlug,
    response: { 200: dappAnswer },
    async handler({ input: { params }, served, pool }) {
      const dapp = orNotFound(await dappBySlug(pool, served.schema('catalogue'), params.slug));
      return { status: 200, body: presentDapp(dapp) };
    },
  });
}

function discoverRoute(): Route {
  return defineRoute({
    id: 'discoverDapps',
    ...common,
    path: '/api/dapps/discover/',
    summary: 'List featured, recent and popular dApps',
    description: [
      `Returns at most ${MAX_DISCOVERED} of each. \`recent\` is sorted by time of listing, newest first; \`popular\` and`,
      '`featured` are sorted by daily users, then transactions, then rating, then reviews.',
    ].join(' '),
    query: z.object({ network }),
    limits: [`DApps of each list: ${MAX_DISCOVERED}`],
    response: { 200: discoverAnswer },
    async handler({ input: { query }, served, pool }) {
      const schema = served.schema('catalogue');
      const first = { offset: 0, limit: MAX_DISCOVERED };
      const on = { network: query.network };
      const [featured, recent, popular] = await Promise.all([
        listDapps(pool, schema, { ...on, featured: true }, first, 'popular'),
        listDapps(pool, schema, on, first, 'recent'),
        listDapps(pool, schema, on, first, 'popular'),
      ]);
      const body = {
        featured: featured.map(presentDapp),
        recent: recent.map(presentDapp),
        popular: popular.map(presentDapp),
      };
      return { status: 200, body };
    },
  });
}

function ofCategoryRoute(): Route {
  return defineRoute({
    id: 'listDappsOfCategory',
    ...common,
    path: '/api/dapps/category/{slug}/',
    summary: 'List the dApps of a category',
    description: 'The same rows and pages as `/api/dapps/apps/`; 404 for an unknown category.',
    params: bySlug,
    query: z.object({ network, page: page(), limit: limit() }),
    response: { 200: dappListAnswer },
    async handler(context) {
      const { params, query } = context.input;
      const { slug } = await findCategory(context.pool, context.served, params.slug);
      return await answerList(context, { category: slug, network: query.network });
    },
  });
}

/** Throws 404 for an unknown slug. */
async function findCategory(pool: Sql, served: ServedBuilds, slug: string): Promise<Category> {
  return orNotFound(await categoryBySlug(pool, served.schema('catalogue'), slug));
}
