import { describe, expect, it } from 'vitest';
import { z } from 'zod';

import { jsonParts } from '../../../../api/http/answer-json.ts';
import { defineRoute } from '../../../../api/http/route.ts';

/** A large answer is written in parts, some items at a time: together they are the JSON of the whole. */

const item = z.object({ id: z.int(), text: z.string().optional() });
const answer = z.object({ count: z.int(), results: z.array(item), next: z.string().nullable() });
const body = (length: number) => ({
  count: length,
  results: Array.from({ length }, (_, id) => (id % 3 === 0 ? { id } : { id, text: `"],[${id}` })),
  next: null,
});

const routeOf = (response: z.ZodType) =>
  defineRoute({
    id: 'listItems',
    method: 'GET',
    path: '/api/items/',
    summary: 'items',
    tag: 'items',
    auth: 'none',
    response: { 200: response },
    handler: () => Promise.reject(new Error('not called')),
  });

async function partsOf(response: z.ZodType, value: unknown): Promise<string[]> {
  const parts: string[] = [];
  for await (const part of jsonParts(routeOf(response), 200, value)) parts.push(part);
  return parts;
}

describe('an answer in parts', () => {
  it.each([0, 1, 15, 16, 17, 31, 32, 33, 160])('is the JSON of all its %i items', async (length) => {
    expect((await partsOf(answer, body(length))).join('')).toBe(JSON.stringify(body(length)));
    const { results } = body(length);
    expect((await partsOf(z.array(item), results)).join('')).toBe(JSON.stringify(results));
  });

  it('has several parts of a list when it is large', async () => {
    const large = body(20_000);
    const parts = await partsOf(answer, large);
    expect(parts.join('')).toBe(JSON.stringify(large));
    expect(parts.length).toBeGreaterThan(10);
    expect(Math.max(...parts.map(({ length }) => length))).toBeLessThan(70_000);
  });

  it('leaves out what its schema does not declare, and fails on what does not match it', async () => {
    const undeclared = { ...body(1), results: [{ id: 1, secret: 'x' }] };
    expect((await partsOf(answer, undeclared)).join('')).toBe('{"count":1,"results":[{"id":1}],"next":null}');
    await expect(partsOf(answer, { ...body(0), results: [{ id: 'one' }] })).rejects.toThrow(/does not match/);
  });
});
