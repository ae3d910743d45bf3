import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';

import { afterEach, expect, test, vi } from 'vitest';
import { z } from 'zod';

import { limitReads, readClasses } from '../../../../api/http/clickhouse.ts';
import type { ReadLimits } from '../../../../api/http/clickhouse.ts';
import type { ClickHouse, Settings } from '../../../../infra/clickhouse/client.ts';
import { AppError } from '../../../../schemas/errors.ts';

const query = { name: 'test', sql: 'SELECT 1', row: z.unknown() };
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

/** A server whose reads answer when the test says so, and fail when they are aborted. */
afterEach(() => void vi.useRealTimers());

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
    file: never,
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
function requestOf(name = 'key 1', client = new AbortController(), user = `user of ${name}`) {
  return { caller: () => ({ user, name }), signal: client.signal, place: { isWanted: () => false } };
}

test('runs a few reads at a time and queues the others', async () => {
  const server = slow();
  const clickhouse = limitReads(server, { queue: { places: 2 } })(requestOf());
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
  const clickhouseFor = limitReads(server, { queue: { placesPerCaller: 1 } });
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
  const clickhouseFor = limitReads(server, { queue: { places: 3, placesPerCaller: 2 } });
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
  const clickhouseFor = limitReads(server, { queue: { places: 1 } });
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
  const clickhouseFor = limitReads(server, { queue: { places: 1 } });
  const clickhouse = clickhouseFor(requestOf(), { timeoutMs: 30 });
  const late = clickhouseFor(requestOf(), { timeoutMs: 15 });
  const reads = [clickhouse.rows(query), clickhouse.rows(query), late.rows(query)];
  const outcomes = await Promise.allSettled(reads);
  // The last one did not take long: it never got a place.
  expect(outcomes.map((outcome) => ('reason' in outcome ? outcome.reason.code : null))).toEqual([
    'QUERY_TIMEOUT',
    'QUERY_TIMEOUT',
    'overloaded',
  ]);
  await settled();
  expect(server.running()).toBe(0);
});

test('leaves places to other users, however many keys a user has', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server, { queue: { places: 3, placesPerUser: 2, placesPerCaller: 2 } });
  const client = new AbortController();
  const many = Array.from({ length: 40 }, (_, i) =>
    clickhouseFor(requestOf(`key ${i}`, client, 'user 1')).rows(query),
  );
  await settled();
  expect(server.running()).toBe(2);
  const polite = clickhouseFor(requestOf('key 99')).rows(query);
  await settled();
  expect(server.running()).toBe(3);
  server.answers[2]?.();
  await expect(polite).resolves.toEqual([]);
  client.abort();
  await Promise.allSettled(many);
});

test('gives a free place to the user, and the key, that has read least', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server, { queue: { places: 1 } });
  const order: string[] = [];
  const read = async (name: string, user: string): Promise<void> => {
    await clickhouseFor(requestOf(name, new AbortController(), user)).rows(query);
    order.push(name);
  };
  const reads = ['a1', 'a1', 'a1', 'a2', 'b1'].map((name) => read(name, `user ${name[0]}`));
  for (let i = 0; i < reads.length; i += 1) {
    await settled();
    server.answers[i]?.();
  }
  await Promise.all(reads);
  expect(order.slice(0, 3)).toEqual(['a1', 'b1', 'a2']);
});

/** Starts reads, each of which shows its priority. */
function starting(limits: ReadLimits = {}) {
  const server = slow();
  const priorities: number[] = [];
  const clickhouseFor = limitReads(
    {
      ...server,
      rows: async (asked, params, options) => {
        priorities.push(Number(options?.settings?.['priority']));
        return await server.rows(asked, params, options);
      },
    },
    limits,
  );
  const start = async (name: string, user: string): Promise<number> => {
    void clickhouseFor(requestOf(name, new AbortController(), user))
      .rows(query)
      .catch(() => {});
    await settled();
    return priorities.at(-1) ?? Number.NaN;
  };
  return { start, answers: server.answers };
}

test('puts those after others whose reads took much more time: users, and keys of a user', async () => {
  let now = 1_000_000;
  const { start } = starting({ now: () => now });
  // ClickHouse suspends a query while one with a smaller number runs.
  expect(await start('key 1', 'user 1')).toBe(1);
  expect(await start('key 1', 'user 1')).toBe(1);
  now += 3000;
  // Nobody else reads.
  expect(await start('key 1', 'user 1')).toBe(1);
  expect(await start('key 2', 'user 1')).toBe(1);
  now += 10;
  expect(await start('key 1', 'user 1')).toBe(2);
  expect(await start('key 3', 'user 2')).toBe(1);
  now += 10;
  expect(await start('key 2', 'user 1')).toBe(3);
});

test('puts nobody after others because the clock was set back', async () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  const { start, answers } = starting();
  await start('key 1', 'user 1');
  vi.setSystemTime(Date.now() + 10);
  answers[0]?.();
  await settled();
  vi.setSystemTime(Date.now() - 3_600_000);
  await start('key 2', 'user 2');
  const priority = await start('key 1', 'user 1');
  vi.useRealTimers();
  expect(priority).toBe(1);
});

test('a request whose answer is being sent knows whether others wait for its place', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server);
  const sending = requestOf('key 1');
  const read = clickhouseFor(sending, { readClass: 'trace' }).rows(query);
  await settled();
  server.answers[0]?.();
  await read;
  expect(sending.place.isWanted()).toBe(false);
  void clickhouseFor(requestOf('key 1'), { readClass: 'trace' })
    .rows(query)
    .catch(() => {});
  await settled();
  expect(sending.place.isWanted()).toBe(true);
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
  const waiting = requestOf();
  await expect(clickhouseFor(waiting, options).rows(query)).rejects.toMatchObject({ code: 'overloaded' });
});

test('rejects at once what exceeds the requests of a caller that may wait', async () => {
  const server = slow();
  const clickhouseFor = limitReads(server, { queue: { places: 1, maxWaiting: 1 } });
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
  vi.useFakeTimers();
  const server = slow();
  const clickhouseFor = limitReads(server, { queue: { places: 1 } });
  const deadline = performance.now() + 1000;
  const rejectedAt: number[] = [];
  const outcomes = Array.from({ length: 100 }, async () => {
    try {
      await clickhouseFor(requestOf(), { timeoutMs: 1000 }).rows(query);
      return true;
    } catch (error) {
      rejectedAt.push(performance.now());
      expect(error).toMatchObject({ status: 503, code: 'overloaded' });
      return false;
    }
  });
  const settledOutcomes = Promise.all(outcomes);
  let isDone = false;
  void settledOutcomes.then(() => (isDone = true));
  // One read takes 50 ms, so some twenty fit in a second.
  for (let i = 0; !isDone; i += 1) {
    await vi.advanceTimersByTimeAsync(50);
    server.answers[i]?.();
  }
  const isAnswered = await settledOutcomes;
  const answered = isAnswered.filter(Boolean).length;
  expect(answered).toBeGreaterThanOrEqual(15);
  expect(answered).toBeLessThan(25);
  // In the order of arrival: those that are answered came first.
  expect(isAnswered.slice(0, answered)).not.toContain(false);
  expect(Math.max(...rejectedAt)).toBeLessThan(deadline - 500);
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

test.each(['page', 'account', 'trace', 'proof', 'stream', 'export'] as const)(
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

test.each([
  { readClass: 'page', isSlow: true },
  { readClass: 'account', isSlow: true },
  { readClass: 'trace', isSlow: false },
] as const)(
  'a file beside a read of the class $readClass is slow: $isSlow',
  async ({ readClass, isSlow }) => {
    const server = slow();
    const chunks = Array.from({ length: 100 }, () => Buffer.alloc(100));
    const settings: (Settings | undefined)[] = [];
    const file: ClickHouse['file'] = async (_, __, options) => {
      settings.push(options.settings);
      return Readable.from(chunks, { objectMode: false });
    };
    const clickhouseFor = limitReads({ ...server, file }, { fileRowsPerSecond: 100 });
    void clickhouseFor(requestOf('reader'), { readClass })
      .rows(query)
      .catch(() => {});
    await settled();
    const statement = { name: 'test', sql: 'SELECT 1', format: 'CSV', rowBytes: 10, isSorted: false };
    const exporting = clickhouseFor(requestOf('exporter'), { readClass: 'export' });
    const sent = await exporting.file(statement, {}, {});
    // What it reads before it begins is slow, too.
    (await exporting.file({ ...statement, isSorted: true }, {}, {})).destroy();
    expect(settings.map((of) => of?.['max_execution_speed'])).toEqual([undefined, isSlow ? 600 : undefined]);
    let bytes = 0;
    sent.on('data', (chunk: Buffer) => void (bytes += chunk.length));
    if (isSlow) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(bytes).toBeLessThan(10_000);
      expect(bytes).toBeGreaterThan(0);
    } else {
      await vi.waitFor(() => expect(bytes).toBe(10_000));
    }
    sent.destroy();
  },
);

test('takes at most the memory of ClickHouse that docs/operations.md states', () => {
  const { trace, export: exports, ...ordinary } = readClasses;
  // A history of balances is up to four reads at once.
  const reads = Object.values(ordinary).reduce<number>(
    (sum, { places }) => sum + places,
    3 * readClasses.account.places,
  );
  const perRead = new Set(Object.values(ordinary).map(({ settings }) => settings.max_memory_usage));
  expect(perRead.size).toBe(1);
  const ofRead = ordinary.page.settings.max_memory_usage;
  const ofTrace = trace.settings.max_memory_usage;
  const ofExport = exports.settings.max_memory_usage;
  const total = reads * ofRead + trace.places * ofTrace + exports.places * ofExport;
  const page = readFileSync('docs/operations.md', 'utf8').replaceAll(/\s+/g, ' ');
  expect(page).toContain(
    `The limits are ${ofRead / 1e6} MB per read, ${ofTrace / 1e9} GB per trace and ${ofExport / 1e9} GB per export. ` +
      `Each API process runs up to ${reads} reads, ${trace.places} traces and ${exports.places} exports at a time`,
  );
  expect(page).toContain(`so it can use ${total / 1e9} GB of ClickHouse's memory`);
});
