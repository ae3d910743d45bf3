import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { domainsChangedAfter } from '../../projections/catalogue/queries.ts';
import type { ChangePosition, ChangedDomain } from '../../projections/catalogue/queries.ts';
import type { DomainChangesAnswer } from '../../schemas/api/domains.ts';
import { presentDomain } from './present.ts';

/** How far a client has come. */
interface Walk {
  readonly after: ChangePosition;
  /** Its copy lacks nothing up to this `changed`: so far it had come when there was no more. */
  readonly complete: number;
}

const BEGINNING: Walk = { after: { changed: 0, id: 0 }, complete: 0 };

/** A walk as `next_since` gives it. */
const POSITION = /^([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,15})$/;

export function since() {
  return z
    .string()
    .transform((text, context): Walk => {
      const [complete, changed = 0, id = 0] = (POSITION.exec(text) ?? []).slice(1).map(Number);
      if (complete !== undefined) return { after: { changed, id }, complete };
      context.addIssue({ code: 'custom', message: 'Not a next_since of an earlier answer.' });
      return z.NEVER;
    })
    .meta({
      description: '`next_since` of the answer before; absent: from the beginning',
      override: { type: 'string' },
    });
}

/** What became of the list since, in the order of each domain's last change. */
export async function domainChanges(
  db: Sql,
  schema: string,
  { after, complete }: Walk = BEGINNING,
  limit: number,
): Promise<DomainChangesAnswer> {
  const found = await domainsChangedAfter(db, schema, after, limit + 1);
  const told = found.slice(0, limit);
  const hasMore = found.length > limit;
  const { changed, id } = told.at(-1) ?? after;
  return {
    results: told.map((domain) => ({ ...presentDomain(domain), change: changeOf(domain, complete) })),
    next_since: `${hasMore ? complete : changed}-${changed}-${id}`,
    has_more: hasMore,
  };
}

/** While there is more, one that changes twice is told twice, and both times as added if it was not there before. */
function changeOf(
  { in_force_since: from }: ChangedDomain,
  complete: number,
): DomainChangesAnswer['results'][number]['change'] {
  if (from === null) return 'removed';
  return from > complete ? 'added' : 'changed';
}
