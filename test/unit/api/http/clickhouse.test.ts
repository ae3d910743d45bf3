import { expect, test } from 'vitest';
import { z } from 'zod';

import { readsForRequest, limitReads } from '../../../../api/http/clickhouse.ts';
import type { ClickHouse } from '../../../../infra/clickhouse/client.ts';
import { AppError } from '../../../../schemas/errors.ts';

const query = { name: 'test', sql: 'SELECT 1', row: z.unknown() };
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

/** A server whose reads answer when the test says so, and fail when they are aborted. */
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
    ddl: never,
    syncReplicas: never,
    insert: never,
    insertEncoded: never,
    ping: never,
    close: never,
  };
}

const unavailable = { name: 'AppError', code: 'STORE_UNAVAILABLE', retryable: true };

test('limitReads runs a few reads at a time and queues the others', async () => {
  const server = slow();
  const limited = limitReads(server, { concurrency: 2 });
  const reads = Array.from({ length: 5 }, () => limited.rows(query));
  await settled();
  expect(server.running()).toBe(2);
  for (let i = 0; i < 5; i += 1) {
    server.answers[i]?.();
    await settled();
  }
  await expect(Promise.all(reads)).resolves.toHaveLength(5);
});

test('limitReads runs the reads of the earliest request first', async () => {
  const server = slow();
  const limited = limitReads(server, { concurrency: 1 });
  const done: string[] = [];
  const request = async (name: string): Promise<void> => {
    const own = readsForRequest(new AbortController().signal, limited);
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
  // Between two reads of a request the next request gets a slot. Without priorities, a would end seventh.
  expect(doneAfter).toEqual(['', '', '', '', 'a', 'ab', 'ab', 'ab', 'abc']);
});

test('a read is aborted when its client disconnects, and never starts if it is still queued', async () => {
  const server = slow();
  const limited = limitReads(server, { concurrency: 1 });
  const [first, second] = [new AbortController(), new AbortController()];
  const running = expect(readsForRequest(first.signal, limited).rows(query)).rejects.toMatchObject(
    unavailable,
  );
  const waiting = expect(readsForRequest(second.signal, limited).rows(query)).rejects.toMatchObject(
    unavailable,
  );
  const last = limited.rows(query);
  second.abort();
  await waiting;
  first.abort();
  await running;
  await settled();
  expect(server.answers).toHaveLength(2);
  server.answers[1]?.();
  await expect(last).resolves.toEqual([]);
});

test('a read times out, time in the queue included', async () => {
  const server = slow();
  const limited = limitReads(server, { concurrency: 1, timeoutMs: 30 });
  const reads = [limited.rows(query), limited.rows(query)];
  for (const read of reads)
    await expect(read).rejects.toMatchObject({ code: 'QUERY_TIMEOUT', retryable: true });
  await settled();
  expect(server.running()).toBe(0);
});

test('a request with a longer budget of its own is not ended by the timeout of a read', async () => {
  const server = slow();
  const limited = limitReads(server, { timeoutMs: 20 });
  const { signal } = new AbortController();
  const read = readsForRequest(signal, limited, 2000).rows(query);
  await new Promise((resolve) => setTimeout(resolve, 60));
  server.answers[0]?.();
  await expect(read).resolves.toEqual([]);
  const late = readsForRequest(signal, limited, 40).rows(query);
  await expect(late).rejects.toMatchObject({ code: 'QUERY_TIMEOUT', retryable: true });
});

test('limitReads rejects at once when the queue is full', async () => {
  const server = slow();
  const limited = limitReads(server, { concurrency: 1, maxQueued: 1 });
  const reads = [limited.rows(query), limited.rows(query)];
  await expect(limited.rows(query)).rejects.toMatchObject(unavailable);
  await settled();
  server.answers[0]?.();
  await settled();
  server.answers[1]?.();
  await expect(Promise.all(reads)).resolves.toHaveLength(2);
});

test('limitReads passes on an error that a retry cannot help', async () => {
  const server = slow();
  const wrong = new TypeError('a bug');
  const limited = limitReads({
    ...server,
    rows: async () => {
      throw wrong;
    },
  });
  await expect(limited.rows(query)).rejects.toBe(wrong);
  expect(wrong).not.toBeInstanceOf(AppError);
});
