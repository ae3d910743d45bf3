import { invalidPage } from './errors.ts';
import type { PageParameter } from './params.ts';

/** Rows reachable by page number; a cursor reaches all. */
export const REACHABLE_ROWS = 1_000_000;

export interface Page {
  readonly number: number;
  readonly limit: number;
  /** Rows before the page's first. */
  readonly offset: number;
  readonly totalPages: number;
}

/** The requested page; throws 404 "Invalid page." when there is none. An empty list has a first page. */
export function resolvePage(page: PageParameter, limit: number, count: number): Page {
  const maxPages = Math.floor(REACHABLE_ROWS / limit);
  const totalPages = Math.max(1, Math.min(Math.ceil(count / limit), maxPages));
  const number = page === 'last' ? totalPages : page;
  if (number === 'invalid' || number > totalPages) throw invalidPage();
  return { number, limit, offset: (number - 1) * limit, totalPages };
}

/** Of the rows of a list. */
export interface RowCount {
  readonly count: number;
  readonly isEstimate: boolean;
}

/**
 * The page may be newer than the count, which must not be lower than the rows shown. Instead of an estimate, the last page
 * gives the exact count; throws 404 for an empty page after it.
 *
 * @param rows number of rows found, one more than `limit` if there is a next page
 */
export function countWithPage(
  { count, isEstimate }: RowCount,
  page: number,
  limit: number,
  rows: number,
): RowCount {
  const seen = rows === 0 ? 0 : (page - 1) * limit + rows;
  if (!isEstimate || rows > limit) return { count: Math.max(count, seen), isEstimate };
  if (rows === 0 && page > 1) throw invalidPage();
  return { count: seen, isEstimate: false };
}

export interface Envelope<T> {
  links: { next: string | null; previous: string | null; next_cursor?: string | null };
  count: number;
  count_is_estimate?: true;
  total_pages: number;
  results: T[];
}

export interface EnvelopeOptions {
  /** The query as sent; the links repeat it without the paging parameters. */
  readonly query: Readonly<Record<string, string>>;
  readonly count: number;
  readonly countIsEstimate?: boolean;
  /** Opaque cursor of the next page; null at the end, absent for lists without cursors. */
  readonly nextCursor?: string | null;
}

/** The envelope of a page by number. */
export function envelope<T>(results: T[], page: Page, options: EnvelopeOptions): Envelope<T> {
  const link = (number: number): string => linkTo(['page', String(number)], page.limit, options.query);
  return {
    links: {
      next: page.number < page.totalPages ? link(page.number + 1) : null,
      previous: page.number > 1 ? link(page.number - 1) : null,
      ...(options.nextCursor === undefined ? {} : { next_cursor: options.nextCursor }),
    },
    count: options.count,
    ...(options.countIsEstimate === true ? { count_is_estimate: true } : {}),
    total_pages: page.totalPages,
    results,
  };
}

/** The envelope of a page by cursor, which has a next page but no number. */
export function cursorEnvelope<T>(
  results: T[],
  limit: number,
  options: EnvelopeOptions & { readonly nextCursor: string | null },
): Envelope<T> {
  const { nextCursor } = options;
  return {
    links: {
      next: nextCursor === null ? null : linkTo(['cursor', nextCursor], limit, options.query),
      previous: null,
      next_cursor: nextCursor,
    },
    count: options.count,
    ...(options.countIsEstimate === true ? { count_is_estimate: true } : {}),
    total_pages: resolvePage(1, limit, options.count).totalPages,
    results,
  };
}

const PAGING = new Set(['page', 'limit', 'page_size', 'cursor']);

function linkTo(
  page: readonly [name: string, value: string],
  limit: number,
  query: Readonly<Record<string, string>>,
): string {
  const filters = Object.entries(query).filter(([name]) => !PAGING.has(name));
  const pairs = [page, ['limit', String(limit)] as const, ...filters];
  return `?${pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&')}`;
}

/** `encodeURIComponent` that does not throw on a lone surrogate. */
const encode = (value: string): string => encodeURIComponent(value.toWellFormed());
