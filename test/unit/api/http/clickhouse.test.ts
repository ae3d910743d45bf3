import { expect, test } from 'vitest';
import { z } from 'zod';

import { limitReads, readClasses } from '../../../../api/http/clickhouse.ts';
import type { ClickHouse, Settings } from '../../../../infra/clickhouse/client.ts';
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
    eachPart: never,
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

/** A request of a caller whose client stays, or leaves when the test says so. */
function requestOf(caller = 'key 1', client = new AbortController()) {
  return { caller: () => caller, signal: client.signal };
}

test('runs a few reads at a time and queues the others', async () => {
  const server = slow();
  const clickhouse = limitReads(server, { places: 2 })(requestOf());
  const reads = Array.from({ length: 5 }, () => clickhouse.rows(query));
  await settled();
  expect(server.running()).toBe(2);
  for (let i = 0; i < 5; i += 1) {
    server.answers[i]?.();
    await settled();
  }
  await expect(Promise.all(reads)).resolves.toHaveLength(5);
});

test("runs the reads of a caller's earliest request first", async () => {
  const server = slow();
  const clickhouseFor = limitReads(server, { placesPerCaller: 1 });
  const done: string[] = [];
  const request = async (name: string): Promise<void> => {
    const own = clickhouseFor(requestOf());
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
  // Between two reads of a request the next request gets a place. Without priorities, a would end seventh.
  expect(doneAfter).toEqual(['', '', '', '', 'a', 'ab', 'ab', 'ab', 'abc']);
});

test('a caller with many requests leaves places to others', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server, { places: 3, placesPerCaller: 2 });
  const greedy = Array.from({ length: 50 }, () => clickhouseFor(requestOf('key 1')).rows(query));
  await settled();
  expect(server.running()).toBe(2);
  const polite = clickhouseFor(requestOf('key 2')).rows(query);
  await settled();
  expect(server.running()).toBe(3);
  server.answers[2]?.();
  await expect(polite).resolves.toEqual([]);
  for (let i = 0; i < 60; i += 1) {
    server.answers[i]?.();
    await settled();
    expect(server.running()).toBeLessThanOrEqual(2);
  }
  await Promise.all(greedy);
});

test('a read is aborted when its client disconnects, and never starts if it is still queued', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server, { places: 1 });
  const [first, second] = [new AbortController(), new AbortController()];
  const running = expect(clickhouseFor(requestOf('key 1', first)).rows(query)).rejects.toMatchObject(
    unavailable,
  );
  const waiting = expect(clickhouseFor(requestOf('key 1', second)).rows(query)).rejects.toMatchObject(
    unavailable,
  );
  const last = clickhouseFor(requestOf()).rows(query);
  second.abort();
  await waiting;
  first.abort();
  await running;
  await settled();
  expect(server.answers).toHaveLength(2);
  server.answers[1]?.();
  await expect(last).resolves.toEqual([]);
});

test('the reads of a request time out, time in the queue included', async () => {
  const server = slow();
  const clickhouse = limitReads(server, { places: 1 })(requestOf(), { timeoutMs: 30 });
  const reads = [clickhouse.rows(query), clickhouse.rows(query)];
  for (const read of reads)
    await expect(read).rejects.toMatchObject({ code: 'QUERY_TIMEOUT', retryable: true });
  await settled();
  expect(server.running()).toBe(0);
});

test("puts a caller's further reads after those of other callers, once others read", async () => {
  const server = slow();
  const priorities: unknown[] = [];
  const clickhouseFor = limitReads({
    ...server,
    rows: (asked, params, options) => {
      priorities.push(options?.settings?.['priority']);
      return server.rows(asked, params, options);
    },
  });
  const read = async (caller: string): Promise<unknown> => {
    clickhouseFor(requestOf(caller))
      .rows(query)
      .catch(() => {});
    await settled();
    return priorities.at(-1);
  };
  // ClickHouse suspends a query while one with a smaller number runs.
  expect(await read('key 1')).toBe(1);
  expect(await read('key 1')).toBe(1);
  expect(await read('key 2')).toBe(1);
  expect(await read('key 1')).toBe(2);
  expect(await read('key 2')).toBe(2);
  expect(await read('key 3')).toBe(1);
});

test('a trace keeps its place until it is answered, or its client leaves', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server);
  const clients = [new AbortController(), new AbortController()] as const;
  const [first, second] = clients.map((client) =>
    clickhouseFor(requestOf('key 1', client), { readClass: 'trace' }),
  );
  for (let i = 0; i < 2; i += 1) {
    const read = first?.rows(query);
    await settled();
    server.answers[i]?.();
    await read;
  }
  const waiting = second?.rows(query);
  await settled();
  // The answer of the first is being sent.
  expect(server.running()).toBe(0);
  clients[0].abort();
  await settled();
  expect(server.running()).toBe(1);
  server.answers[2]?.();
  await waiting;
});

test('a trace does not wait for a place beyond its time', async () => {
  const clickhouseFor = limitReads(slow());
  void clickhouseFor(requestOf(), { readClass: 'trace' }).rows(query);
  await settled();
  const options = { readClass: 'trace', timeoutMs: 20 } as const;
  await expect(clickhouseFor(requestOf(), options).rows(query)).rejects.toMatchObject({
    code: 'QUERY_TIMEOUT',
  });
});

test('rejects at once what exceeds the requests of a caller that may wait', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server, { places: 1, maxWaiting: 1 });
  const reads = [clickhouseFor(requestOf()).rows(query)];
  await settled();
  reads.push(clickhouseFor(requestOf()).rows(query));
  await expect(clickhouseFor(requestOf()).rows(query)).rejects.toMatchObject({
    status: 503,
    code: 'overloaded',
  });
  await settled();
  server.answers[0]?.();
  await settled();
  server.answers[1]?.();
  await expect(Promise.all(reads)).resolves.toHaveLength(2);
});

test('rejects the newest requests as soon as it is clear that they would start too late', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server, { places: 1 });
  const startedAt = performance.now();
  const outcomes = Array.from({ length: 100 }, async () => {
    try {
      await clickhouseFor(requestOf(), { timeoutMs: 1000 }).rows(query);
      return { isAnswered: true, afterMs: performance.now() - startedAt };
    } catch (error) {
      expect(error).toMatchObject({ status: 503, code: 'overloaded' });
      return { isAnswered: false, afterMs: performance.now() - startedAt };
    }
  });
  const settledOutcomes = Promise.all(outcomes);
  let isDone = false;
  void settledOutcomes.then(() => (isDone = true));
  // One read takes 50 ms, so some twenty fit in a second.
  for (let i = 0; !isDone; i += 1) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    server.answers[i]?.();
  }
  const all = await settledOutcomes;
  const answered = all.filter(({ isAnswered }) => isAnswered);
  expect(answered.length).toBeGreaterThanOrEqual(5);
  expect(answered.length).toBeLessThan(25);
  // In the order of arrival: those that are answered came first.
  expect(all.slice(0, answered.length).every(({ isAnswered }) => isAnswered)).toBe(true);
});

test('passes on an error that a retry cannot help', async () => {
  const server = slow();
  const wrong = new TypeError('a bug');
  const clickhouseFor = limitReads({
    ...server,
    rows: async () => {
      throw wrong;
    },
  });
  await expect(clickhouseFor(requestOf()).rows(query)).rejects.toBe(wrong);
  expect(wrong).not.toBeInstanceOf(AppError);
});

test.each(['page', 'account', 'trace'] as const)(
  'limits the time and memory of a read of class %s, and the bytes it reads, unless the read has limits of its own',
  async (readClass) => {
    const server = slow();
    const sent: Settings[] = [];
    const rows: ClickHouse['rows'] = async (_query, _params, options) => {
      sent.push(options?.settings ?? {});
      return [];
    };
    const clickhouse = limitReads({ ...server, rows })(requestOf(), { readClass });
    await clickhouse.rows(query);
    await clickhouse.rows(query, {}, { settings: { max_execution_time: 1 } });
    for (const name of ['max_execution_time', 'max_memory_usage', 'max_bytes_to_read'])
      expect(sent[0]?.[name]).toBeGreaterThan(0);
    // It would refuse the first page of a token with more transfers than that.
    expect(sent[0]).not.toHaveProperty('max_rows_to_read');
    // ClickHouse ends a read no later than its request.
    expect(Number(sent[0]?.['max_execution_time']) * 1000).toBe(readClasses[readClass].timeoutMs);
    expect(sent[1]?.['max_execution_time']).toBe(1);
  },
);
