import { expect, test, vi } from 'vitest';

import { limitStatements } from '../../../../api/http/postgres.ts';
import type { PoolFor } from '../../../../api/http/postgres.ts';
import type { Sql } from '../../../../infra/postgres/client.ts';

const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

/** A server whose statements answer when the test says so. */
function slow(): { pool: Sql; begun: string[]; answer: () => void } {
  const [begun, answers]: [string[], (() => void)[]] = [[], []];
  const query = async (statement: unknown): Promise<unknown> => {
    begun.push(String(statement));
    return await new Promise((resolve) => answers.push(() => resolve({ rows: [] })));
  };
  return { pool: { query } as unknown as Sql, begun, answer: () => answers.shift()?.() };
}

/** Statements of one request each, of a caller whose client stays or leaves when the test says so. */
function asker(poolFor: PoolFor, user: string, key = `key of ${user}`, client = new AbortController()) {
  return async (statement: string): Promise<unknown> =>
    await poolFor({ caller: () => ({ user, name: key }), signal: client.signal }).query(statement);
}

test('runs a few statements of a caller at a time, and those of another one beside them', async () => {
  const { pool, begun, answer } = slow();
  const poolFor = limitStatements(pool);
  const all = Array.from({ length: 10 }, (_, i) => asker(poolFor, 'busy')(`busy ${i}`));
  all.push(...Array.from({ length: 10 }, (_, i) => asker(poolFor, 'busy', 'other key')(`other ${i}`)));
  all.push(asker(poolFor, 'quiet')('quiet'));
  await settled();
  expect(begun.filter((statement) => statement.startsWith('busy'))).toEqual([
    'busy 0',
    'busy 1',
    'busy 2',
    'busy 3',
  ]);
  expect(begun.filter((statement) => statement.startsWith('other'))).toEqual(['other 0', 'other 1']);
  expect(begun).toContain('quiet');
  for (const _ of all) {
    answer();
    await settled();
  }
  await expect(Promise.all(all)).resolves.toHaveLength(21);
});

test('drops what waits for a client that has gone', async () => {
  const { pool, begun, answer } = slow();
  const poolFor = limitStatements(pool);
  const kept = Array.from({ length: 4 }, (_, i) => asker(poolFor, 'busy')(`kept ${i}`));
  const client = new AbortController();
  const dropped = asker(poolFor, 'busy', 'key of busy', client)('dropped');
  const next = asker(poolFor, 'busy')('next');
  client.abort();
  await expect(dropped).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
  for (let i = 0; i < 5; i += 1) {
    answer();
    await settled();
  }
  await expect(Promise.all([...kept, next])).resolves.toHaveLength(5);
  expect(begun).not.toContain('dropped');
});

test('rejects a statement that has no place in time, and no other', async () => {
  vi.useFakeTimers();
  try {
    const { pool, begun, answer } = slow();
    const poolFor = limitStatements(pool);
    const running = Array.from({ length: 4 }, (_, i) => asker(poolFor, 'busy')(`running ${i}`));
    const late = asker(poolFor, 'busy')('late');
    const refused = expect(late).rejects.toMatchObject({ status: 503, code: 'overloaded' });
    await vi.advanceTimersByTimeAsync(9999);
    const next = asker(poolFor, 'busy')('next');
    await vi.advanceTimersByTimeAsync(1);
    await refused;
    for (let i = 0; i < 5; i += 1) {
      answer();
      await vi.advanceTimersByTimeAsync(1);
    }
    await expect(Promise.all([...running, next])).resolves.toHaveLength(5);
    expect(begun.at(-1)).toBe('next');
  } finally {
    vi.useRealTimers();
  }
});
