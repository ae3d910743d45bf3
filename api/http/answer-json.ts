import { z } from 'zod';

import { createYielding } from '../../infra/yielding.ts';
import { StreamedAnswer } from './route.ts';
import type { Route } from './route.ts';

/** Size of the parts of a large answer, in characters. */
export const PART_CHARS = 65_536;
/** Items written at a time, between two checks of the clock. */
const ITEMS = 16;

/**
 * The JSON of an answer as its schema declares it. Other requests are served while the items of a list are checked and
 * written: of an array, or of the longest array in an object.
 */
export async function* jsonParts(route: Route, status: number, body: unknown): AsyncGenerator<string> {
  const schema = route.response[status];
  if (schema instanceof StreamedAnswer) throw new TypeError(`${route.path}: the answer is not JSON`);
  if (schema instanceof z.ZodArray) {
    yield* arrayParts(route, status, schema, body as Iterable<unknown>);
    return;
  }
  const list = schema instanceof z.ZodObject ? longestList(schema, body) : null;
  if (list === null) {
    yield JSON.stringify(asDeclared(route, status, schema, body));
    return;
  }
  const rest = asDeclared(route, status, schema, { ...(body as object), [list.name]: [] });
  let separator = '{';
  for (const [name, value] of Object.entries(rest as object)) {
    if (value === undefined) continue;
    yield `${separator}${JSON.stringify(name)}:`;
    separator = ',';
    if (name === list.name) yield* arrayParts(route, status, list.schema, list.items);
    else yield JSON.stringify(value);
  }
  yield '}';
}

interface List {
  readonly name: string;
  readonly schema: z.ZodArray;
  readonly items: readonly unknown[];
}

function longestList({ shape }: z.ZodObject, body: unknown): List | null {
  if (typeof body !== 'object' || body === null) return null;
  const lists = Object.entries(body).flatMap(([name, items]): List[] => {
    const schema = shape[name];
    return schema instanceof z.ZodArray && Array.isArray(items) ? [{ name, schema, items }] : [];
  });
  return lists.toSorted((a, b) => b.items.length - a.items.length)[0] ?? null;
}

async function* arrayParts(
  route: Route,
  status: number,
  { element }: z.ZodArray,
  items: Iterable<unknown>,
): AsyncGenerator<string> {
  const yielding = createYielding();
  let part = '[';
  let declared: unknown[] = [];
  let isFirst = true;
  // Writing some at a time takes two thirds of the time of writing each.
  const write = (): void => {
    if (declared.length === 0) return;
    part += (isFirst ? '' : ',') + JSON.stringify(declared).slice(1, -1);
    isFirst = false;
    declared = [];
  };
  for (const item of items) {
    declared.push(asDeclared(route, status, element as z.ZodType, item));
    if (declared.length < ITEMS) continue;
    write();
    await yielding();
    if (part.length < PART_CHARS) continue;
    yield part;
    part = '';
  }
  write();
  yield `${part}]`;
}

/** The body as the schema declares it, without undeclared fields; throws when it does not match. */
export function asDeclared(
  route: Route,
  status: number,
  schema: z.ZodType | null | undefined,
  body: unknown,
): unknown {
  if (schema === null) return null;
  const parsed = schema?.safeParse(body);
  if (parsed?.success === true) return parsed.data;
  const problem = { route: route.path, status, issues: parsed?.error.issues ?? 'status not declared' };
  throw new TypeError(`Answer does not match the route's schema: ${JSON.stringify(problem)}`);
}
