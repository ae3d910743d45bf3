import { z } from 'zod';

import type { QuarantineFilter } from '../../projections/quarantine/queries.ts';
import { quarantineDetail, quarantineList } from '../../schemas/api/admin/quarantine.ts';
import { isStorable } from '../../schemas/text.ts';
import { cursorEnvelope } from '../http/envelope.ts';
import { invalidInput } from '../http/errors.ts';
import { address, boolean, integer, limit, text } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import type { Operator } from './operator.ts';
import { answered } from './operator-errors.ts';

export interface QuarantineRouteDeps {
  readonly operator: Operator;
}

/** The longest id is that of an event, 66 digits and a position, or of a message with a topic's prefix. */
export const entryId = text({ min: 1, max: 300, description: 'Id of an entry' });

export function quarantineRoutes(deps: QuarantineRouteDeps): Route[] {
  return [listRoute(deps), showRoute(deps)];
}

function listRoute({ operator }: QuarantineRouteDeps): Route {
  return defineRoute({
    id: 'listQuarantine',
    method: 'GET',
    path: '/api/admin/quarantine/',
    summary: 'List quarantined events and messages, newest first',
    description: 'The same as `tds quarantine list`.',
    tag: 'Administration',
    auth: 'admin',
    asOf: 'This route returns the current state.',
    query: z.object({
      all: boolean('With resolved entries').optional(),
      kind: z.enum(['event', 'message'], { error: 'Must be event or message.' }).optional(),
      contract: address('Only events of this contract').optional(),
      block: integer({ min: 0, description: 'Only events of this block' }).optional(),
      limit: limit(),
      cursor: text({ max: 500, description: '`links.next_cursor` of the previous page' }).optional(),
    }),
    response: { 200: quarantineList },
    async handler({ input: { query }, request }) {
      const { all = false, cursor, limit: wanted, ...filter } = query;
      const { items, count, next } = await operator.quarantine({
        ...filter,
        open: !all,
        limit: wanted,
        after: cursor === undefined ? undefined : decodeCursor(cursor),
      });
      const nextCursor = next === null ? null : encodeCursor(next);
      return {
        status: 200,
        body: cursorEnvelope([...items], wanted, { query: request.query, count, nextCursor }),
      };
    },
  });
}

function showRoute({ operator }: QuarantineRouteDeps): Route {
  return defineRoute({
    id: 'getQuarantined',
    method: 'GET',
    path: '/api/admin/quarantine/{id}/',
    summary: 'Show one entry: the raw event decoded as each standard, beside the shapes that were expected',
    description:
      'The same as `tds quarantine show`, except that a message is shown as far as the quarantine has copied it.',
    tag: 'Administration',
    auth: 'admin',
    asOf: 'This route returns the current state.',
    params: z.object({ id: entryId }),
    response: { 200: quarantineDetail },
    async handler({ input: { params } }) {
      return { status: 200, body: await answered(operator.quarantined(params.id)) };
    },
  });
}

const cursorFields = z.tuple([z.int().min(0), z.string().min(1).max(300).refine(isStorable)]);

function encodeCursor({ quarantinedAt, id }: NonNullable<QuarantineFilter['after']>): string {
  return Buffer.from(JSON.stringify([quarantinedAt, id])).toString('base64url');
}

function decodeCursor(cursor: string): NonNullable<QuarantineFilter['after']> {
  try {
    const [quarantinedAt, id] = cursorFields.parse(JSON.parse(Buffer.from(cursor, 'base64url').toString()));
    return { quarantinedAt, id };
  } catch {
    throw invalidInput({ cursor: ['Invalid cursor.'] });
  }
}
