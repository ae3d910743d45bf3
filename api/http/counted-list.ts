import type { Sql } from '../../infra/postgres/client.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { envelope, resolvePage } from './envelope.ts';
import type { Envelope, Page } from './envelope.ts';
import type { PageParameter } from './params.ts';
import type { RequestInfo } from './route.ts';

/** What a handler is given of the request. */
interface Context {
  readonly input: { readonly query: { readonly page: PageParameter; readonly limit: number } };
  readonly served: ServedBuilds;
  readonly pool: Sql;
  readonly request: Pick<RequestInfo, 'query'>;
}

/** Answers a page by number of a list of the catalogue: counts the rows of the list, then reads those of the page. */
export function countedList<F, R, T>(
  count: (db: Sql, schema: string, filters: F) => Promise<number>,
  list: (db: Sql, schema: string, filters: F, page: Page) => Promise<readonly R[]>,
  present: (row: R) => T,
): (context: Context, filters: F) => Promise<{ status: 200; body: Envelope<T> }> {
  return async ({ input: { query }, served, pool, request }, filters) => {
    const schema = served.schema('catalogue');
    const total = await count(pool, schema, filters);
    const page = resolvePage(query.page, query.limit, total);
    const rows = await list(pool, schema, filters, page);
    const results = rows.map((row) => present(row));
    return { status: 200, body: envelope(results, page, { query: request.query, count: total }) };
  };
}
