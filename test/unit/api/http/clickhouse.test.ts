import { expect, test } from 'vitest';
import { z } from 'zod';

import { endingWith, guardClickHouse } from '../../../../api/http/clickhouse.ts';
import type { ClickHouse } from '../../../../infra/clickhouse/client.ts';
import { AppError } from '../../../../schemas/errors.ts';

const query = { name: 'test', sql: 'SELECT 1', row: z.unknown() };
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

/** A server whose reads answer when the test says so, or end when they are aborted. */
function slow(): ClickHouse & { answers: (() => void)[]; running(): number } {
  const answers: (() => void)[] = [];
  let running = 0;
  const never = async (): Promise<never> => {
    throw new Error('not asked for');
  };
  return {
    answers,
    running: () => running,
    async rows(_query, _params, options) {
      running += 1;
      try {
        return await new Promise((resolve, reject) => {
          answers.push(() => resolve([]));
          options?.signal?.addEventListener('abort', () => reject(new Error('The request was aborted.')));
        });
      } finally {
        running -= 1;
      }
    },
    command: never,
    insert: never,
    insertEncoded: never,
    ping: never,
    close: never,
  };
}

const unavailable = { name: 'AppError', code: 'STORE_UNAVAILABLE', retryable: true };

test('so many reads run side by side; the others wait their turn', async () => {
  const server = slow();
  const guarded = guardClickHouse(server, { sideBySide: 2 });
  const reads = Array.from({ length: 5 }, () => guarded.rows(query));
  await settled();
  expect(server.running()).toBe(2);
  for (let i = 0; i < 5; i += 1) {
    server.answers[i]?.();
    await settled();
  }
  await expect(Promise.all(reads)).resolves.toHaveLength(5);
});

test('the reads of a request that came earlier go first, so that some are done in time however many there are', async () => {
  const server = slow();
  const guarded = guardClickHouse(server, { sideBySide: 1 });
  const done: string[] = [];
  const request = async (name: string): Promise<void> => {
    const own = endingWith(new AbortController().signal, guarded);
    for (let i = 0; i < 3; i += 1) await own.rows(query);
    done.push(name);
  };
  const requests = ['a', 'b', 'c'].map(request);
  const doneAfter: string[] = [];
  for (let i = 0; i < 9; i += 1) {
    await settled();
    server.answers[i]?.();
    await settled();
    doneAfter.push(done.join(''));
  }
  await Promise.all(requests);
  // While one request makes up its next read, the next request has a turn. In the order of the reads, a ends seventh.
  expect(doneAfter).toEqual(['', '', '', '', 'a', 'ab', 'ab', 'ab', 'abc']);
});

test('a read whose client is gone ends, and one that still waits never begins', async () => {
  const server = slow();
  const guarded = guardClickHouse(server, { sideBySide: 1 });
  const [first, second] = [new AbortController(), new AbortController()];
  const running = expect(endingWith(first.signal, guarded).rows(query)).rejects.toMatchObject(unavailable);
  const waiting = expect(endingWith(second.signal, guarded).rows(query)).rejects.toMatchObject(unavailable);
  const last = guarded.rows(query);
  second.abort();
  await waiting;
  first.abort();
  await running;
  await settled();
  expect(server.answers).toHaveLength(2);
  server.answers[1]?.();
  await expect(last).resolves.toEqual([]);
});

test('a read that is not done in time is given up, waiting included', async () => {
  const server = slow();
  const guarded = guardClickHouse(server, { sideBySide: 1, patienceMs: 30 });
  const reads = [guarded.rows(query), guarded.rows(query)];
  for (const read of reads) await expect(read).rejects.toMatchObject(unavailable);
  await settled();
  expect(server.running()).toBe(0);
});

test('more than may wait are refused at once', async () => {
  const server = slow();
  const guarded = guardClickHouse(server, { sideBySide: 1, waiting: 1 });
  const reads = [guarded.rows(query), guarded.rows(query)];
  await expect(guarded.rows(query)).rejects.toMatchObject(unavailable);
  await settled();
  server.answers[0]?.();
  await settled();
  server.answers[1]?.();
  await expect(Promise.all(reads)).resolves.toHaveLength(2);
});

test('a mistake in a query stays what it is', async () => {
  const server = slow();
  const wrong = new TypeError('a bug');
  const guarded = guardClickHouse({
    ...server,
    rows: async () => {
      throw wrong;
    },
  });
  await expect(guarded.rows(query)).rejects.toBe(wrong);
  expect(wrong).not.toBeInstanceOf(AppError);
});
