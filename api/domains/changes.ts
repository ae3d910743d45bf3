import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { domainsChangedAfter } from '../../projections/catalogue/queries.ts';
import type { ChangePosition, ChangedDomain } from '../../projections/catalogue/queries.ts';
import type { DomainChangesAnswer } from '../../schemas/api/domains.ts';
import { presentDomain } from './present.ts';

/** How far a client has read the changes. */
interface Progress {
  readonly after: ChangePosition;
  /** The `changed` up to which the client's copy is complete: where it last reached the end. */
  readonly complete: number;
}

const BEGINNING: Progress = { after: { changed: 0, id: 0 }, complete: 0 };

/** The format of `next_since`. */
const POSITION = /^([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,15})$/;

export function since() {
  return z
    .string()
    .transform((text, context): Progress => {
      const [complete, changed = 0, id = 0] = (POSITION.exec(text) ?? []).slice(1).map(Number);
      if (complete !== undefined) return { after: { changed, id }, complete };
      context.addIssue({ code: 'custom', message: 'Not a next_since of an earlier answer.' });
      return z.NEVER;
    })
    .meta({
      description: '`next_since` of the previous answer; absent: from the beginning',
      override: { type: 'string' },
    });
}

/** Domains that changed since, by the time of their last change. */
export async function domainChanges(
  db: Sql,
  schema: string,
  { after, complete }: Progress = BEGINNING,
  limit: number,
): Promise<DomainChangesAnswer> {
  const found = await domainsChangedAfter(db, schema, after, limit + 1);
  const page = found.slice(0, limit);
  const hasMore = found.length > limit;
  const { changed, id } = page.at(-1) ?? after;
  return {
    results: page.map((domain) => ({ ...presentDomain(domain), change: changeOf(domain, complete) })),
    next_since: `${hasMore ? complete : changed}-${changed}-${id}`,
    has_more: hasMore,
  };
}

/** A domain that changes again before a client reaches the end is listed again, as added if its copy lacked it. */
function changeOf(
  { in_force_since: from }: ChangedDomain,
  complete: number,
): DomainChangesAnswer['results'][number]['change'] {
  if (from === null) return 'removed';
  return from > complete ? 'added' : 'changed';
}
