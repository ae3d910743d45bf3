import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { cursorEnvelope, envelope, resolvePage } from '../../../../api/http/envelope.ts';
import { HttpError } from '../../../../api/http/errors.ts';

const refusal = (work: () => unknown): { status: number; detail: string } | null => {
  try {
    work();
    return null;
  } catch (error) {
    if (!(error instanceof HttpError)) throw error;
    return { status: error.status, detail: error.message };
  }
};
const INVALID = { status: 404, detail: 'Invalid page.' };

describe('resolvePage', () => {
  it.each([
    { page: 1, limit: 25, count: 0, number: 1, offset: 0, totalPages: 1 },
    { page: 'last', limit: 25, count: 0, number: 1, offset: 0, totalPages: 1 },
    { page: 1, limit: 25, count: 25, number: 1, offset: 0, totalPages: 1 },
    { page: 2, limit: 25, count: 26, number: 2, offset: 25, totalPages: 2 },
    { page: 'last', limit: 10, count: 95, number: 10, offset: 90, totalPages: 10 },
    { page: 'last', limit: 100, count: 50_000_000, number: 10_000, offset: 999_900, totalPages: 10_000 },
    { page: 'last', limit: 3, count: 50_000_000, number: 333_333, offset: 999_996, totalPages: 333_333 },
  ] as const)('$page of $count by $limit', ({ page, limit, count, ...expected }) => {
    expect(resolvePage(page, limit, count)).toEqual({ limit, ...expected });
  });

  it.each([
    ['invalid', 25, 100],
    [5, 25, 100],
    [2, 25, 0],
    [2, 25, 25],
    [10_001, 100, 50_000_000],
  ] as const)('page %s by %d of %d is answered 404', (page, limit, count) => {
    expect(refusal(() => resolvePage(page, limit, count))).toEqual(INVALID);
  });
});

describe('envelope', () => {
  it('links to the next and previous page: page and limit first, then the filters as sent', () => {
    const query = { token: '0x1', page: '2', search: 'a b&c=d+é', limit: '500', cursor: 'old' };
    const body = envelope(['row'], resolvePage(2, 10, 30), { query, count: 30 });
    expect(body).toEqual({
      links: {
        next: '?page=3&limit=10&token=0x1&search=a%20b%26c%3Dd%2B%C3%A9',
        previous: '?page=1&limit=10&token=0x1&search=a%20b%26c%3Dd%2B%C3%A9',
      },
      count: 30,
      total_pages: 3,
      results: ['row'],
    });
  });

  it('has null links at both ends', () => {
    expect(envelope([], resolvePage(1, 25, 0), { query: {}, count: 0 })).toEqual({
      links: { next: null, previous: null },
      count: 0,
      total_pages: 1,
      results: [],
    });
  });

  it('links by cursor to the next page only', () => {
    const options = { query: { token: '0x1', cursor: 'a' }, count: 60, countIsEstimate: true };
    expect(cursorEnvelope([], 25, { ...options, nextCursor: 'b+/=' })).toEqual({
      links: { next: '?cursor=b%2B%2F%3D&limit=25&token=0x1', previous: null, next_cursor: 'b+/=' },
      count: 60,
      count_is_estimate: true,
      total_pages: 3,
      results: [],
    });
    expect(cursorEnvelope([], 25, { ...options, nextCursor: null }).links.next).toBeNull();
  });

  it('makes links that parse back to the filters, for any value', () => {
    const value = fc.string({ unit: 'binary', minLength: 1 });
    fc.assert(
      fc.property(fc.dictionary(fc.string({ unit: 'binary', minLength: 1 }), value), (filters) => {
        const { links } = envelope([], resolvePage(1, 25, 26), { query: filters, count: 26 });
        const read = new URLSearchParams(links.next ?? '');
        for (const [name, sent] of Object.entries(filters)) {
          if (['page', 'limit', 'page_size', 'cursor'].includes(name)) continue;
          expect(read.getAll(name.toWellFormed())).toContain(sent.toWellFormed());
        }
      }),
    );
  });
});
