import { z } from 'zod';

import {
  classHashById,
  countClassHashes,
  latestClassHashes,
  listClassHashes,
} from '../../projections/catalogue/queries.ts';
import type { ClassHash } from '../../projections/catalogue/queries.ts';
import {
  classHashAnswer,
  classHashListAnswer,
  latestClassHashesAnswer,
} from '../../schemas/api/directory.ts';
import type { ClassHashAnswer } from '../../schemas/api/directory.ts';
import { countedList } from '../http/counted-list.ts';
import { orNotFound } from '../http/errors.ts';
import { boolean, integer, limit, networkFilter, page, text } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { iso, isoOrNull } from '../http/times.ts';

const network = networkFilter().optional();
const answerList = countedList(countClassHashes, listClassHashes, presentClassHash);

const common = { method: 'GET', tag: 'Account class hashes', auth: 'key' } as const;

/** Class hashes of account contracts. */
export function classHashRoutes(): Route[] {
  return [listRoute(), oneRoute(), latestRoute()];
}

function listRoute(): Route {
  return defineRoute({
    id: 'listClassHashes',
    ...common,
    path: '/api/dapps/account-class-hashes/',
    summary: 'List the class hashes of accounts',
    description: 'Sorted by network, account type, and newest first.',
    query: z.object({
      network,
      account_type: text({ max: 100, description: 'Slug of an implementation' }).optional(),
      is_active: boolean().optional(),
      page: page(),
      limit: limit(),
    }),
    response: { 200: classHashListAnswer },
    async handler(context) {
      const { network: on, account_type, is_active } = context.input.query;
      return await answerList(context, { network: on, account_type, is_active });
    },
  });
}

function oneRoute(): Route {
  return defineRoute({
    id: 'getClassHash',
    ...common,
    path: '/api/dapps/account-class-hashes/{id}/',
    summary: 'Get a class hash',
    description: '`/api/dapps/account-class-hashes/` lists the ids.',
    params: z.object({ id: integer() }),
    response: { 200: classHashAnswer },
    async handler({ input: { params }, served, pool }) {
      const found = orNotFound(await classHashById(pool, served.schema('catalogue'), params.id));
      return { status: 200, body: presentClassHash(found) };
    },
  });
}

function latestRoute(): Route {
  return defineRoute({
    id: 'getLatestClassHashes',
    ...common,
    path: '/api/dapps/account-class-hashes/latest/',
    summary: 'Get the newest active class hash of each account type',
    description:
      'The newest is the one released last; an unknown release time counts as the oldest. Without `network`, all networks are compared.',
    query: z.object({ network }),
    response: { 200: latestClassHashesAnswer },
    async handler({ input: { query }, served, pool }) {
      const rows = await latestClassHashes(pool, served.schema('catalogue'), query.network);
      const byType = rows.map(({ account_type, class_hash }) => [account_type, class_hash]);
      return { status: 200, body: Object.fromEntries(byType) };
    },
  });
}

function presentClassHash(row: ClassHash): ClassHashAnswer {
  return {
    ...row,
    released_at: isoOrNull(row.released_at),
    created_at: iso(row.created_at),
    updated_at: iso(row.updated_at),
  };
}
