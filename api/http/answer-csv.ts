import { stringify } from 'csv-stringify/sync';
import { z } from 'zod';

import { createYielding } from '../../infra/yielding.ts';
import { asDeclared } from './answer-json.ts';
import type { Route } from './route.ts';

/** Rows written between two checks of the clock. */
const ROWS = 256;

/** Headers that say what of an answer is not in its rows. */
const headerNames = {
  next_start_time: 'X-Next-Start-Time',
  complete_from: 'X-Complete-From',
  complete: 'X-Complete',
} as const;

/** The `data` of an answer as CSV: a line of names, then its rows. An unknown value is empty. */
export async function* csvParts(route: Route, body: unknown): AsyncGenerator<string> {
  const schema = route.response[200];
  const list = schema instanceof z.ZodObject ? schema.shape['data'] : null;
  if (!(list instanceof z.ZodArray) || !(list.element instanceof z.ZodObject)) {
    throw new TypeError(`${route.path}: the answer has no rows`);
  }
  const { element } = list;
  const columns = Object.keys(element.shape);
  const { data } = body as { readonly data: readonly unknown[] };
  const yielding = createYielding();
  yield stringify([columns]);
  for (let from = 0; from < data.length; from += ROWS) {
    yield stringify(
      data.slice(from, from + ROWS).map((row) => asDeclared(route, 200, element, row)),
      { columns },
    );
    await yielding();
  }
}

/** The headers of an answer as CSV: fields that would otherwise be lost, `null` where they are unknown. */
export function csvHeaders(body: unknown): Record<string, string> {
  const fields = body as Readonly<Record<string, string | boolean | null | undefined>>;
  return Object.fromEntries(
    Object.entries(headerNames).flatMap(([field, name]) =>
      fields[field] === undefined ? [] : [[name, String(fields[field])]],
    ),
  );
}
