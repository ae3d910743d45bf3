import { z } from 'zod';

import type { Sql } from '../../infra/postgres/client.ts';
import { domainsChangedAfter } from '../../projections/catalogue/queries.ts';
import type { ChangePosition, ChangedDomain } from '../../projections/catalogue/queries.ts';
import type { DomainChangesAnswer } from '../../schemas/api/domains.ts';
import { refuse } from '../http/params.ts';
import { presentDomain } from './present.ts';

/** A client's cursor in the changes. */
interface ChangeFeedCursor {
  readonly after: ChangePosition;
  /** The `changed` up to which the client's copy is complete: where it last reached the end. */
  readonly completeUpTo: number;
}

const BEGINNING: ChangeFeedCursor = { after: { changed: 0, id: 0 }, completeUpTo: 0 };

/** The format of `next_since`. */
const CURSOR_FORMAT = /^([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,15})$/;

export function since() {
  return z
    .string()
    .transform((text, context): ChangeFeedCursor => {
      const [completeUpTo, changed = 0, id = 0] = (CURSOR_FORMAT.exec(text) ?? []).slice(1).map(Number);
      if (completeUpTo !== undefined) return { after: { changed, id }, completeUpTo };
      return refuse(context, 'Send `next_since` of a previous answer, or omit it.');
    })
    .meta({
      description: '`next_since` of the previous answer; absent: from the beginning',
      override: { type: 'string' },
    });
}

/** Domains that changed after the cursor, ordered by their last change. */
export async function domainChanges(
  db: Sql,
  schema: string,
  { after, completeUpTo }: ChangeFeedCursor = BEGINNING,
  limit: number,
): Promise<DomainChangesAnswer> {
  const found = await domainsChangedAfter(db, schema, after, limit + 1);
  const page = found.slice(0, limit);
  const hasMore = found.length > limit;
  const { changed, id } = page.at(-1) ?? after;
  return {
    results: page.map((domain) => ({ ...presentDomain(domain), change: changeOf(domain, completeUpTo) })),
    next_since: `${hasMore ? completeUpTo : changed}-${changed}-${id}`,
    has_more: hasMore,
  };
}

/** A domain that changes again while a client pages is listed again: as added if the client did not have it. */
function changeOf(
  { in_force_since: from }: ChangedDomain,
  completeUpTo: number,
): DomainChangesAnswer['results'][number]['change'] {
  if (from === null) return 'removed';
  return from > completeUpTo ? 'added' : 'changed';
}
