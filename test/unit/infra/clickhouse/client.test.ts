import { createServer } from 'node:http';
import type { RequestListener } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { text } from 'node:stream/consumers';

import { ClickHouseError } from '@clickhouse/client';
import { afterEach, describe, expect, test } from 'vitest';
import { ZodError, z } from 'zod';

import { createClickHouse, isClickHouseUnavailable } from '../../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../../infra/clickhouse/client.ts';
import { AppError } from '../../../../schemas/errors.ts';

const closers: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
});

async function serverOf(answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function clientOf(
  answer: RequestListener,
  { timeoutMs = 5000, isReader = false } = {},
): Promise<ClickHouse> {
  const clickhouse = createClickHouse(await serverOf(answer), { application: 'test', timeoutMs, isReader });
  closers.push(() => clickhouse.close());
  return clickhouse;
}

const query = { name: 'test', sql: 'SELECT 1', row: z.object({ one: z.number() }) };
const columns = [{ name: 'one', type: 'UInt32' }] as const;
const requests: [string, (clickhouse: ClickHouse) => Promise<unknown>][] = [
  ['a query', (clickhouse) => clickhouse.rows(query)],
  ['a command', (clickhouse) => clickhouse.command('SELECT 1')],
  ['an insert', (clickhouse) => clickhouse.insert('t', columns, [{ one: 1 }])],
];

/** What a reader is told of its user. */
const profile = {
  fixed: 0,
  quoting: 1,
  max_memory_usage: '0',
  max_execution_time: '0',
  max_bytes_to_read: '0',
};

const failureOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.then(
    () => null,
    (error: unknown) => error,
  );

const exception = (code: number, text: string): RequestListener => {
  return (_, response) =>
    response
      .writeHead(500, { 'x-clickhouse-exception-code': String(code) })
      .end(`Code: ${code}. DB::Exception: It failed. (${text}) (version 26.1.1.1)`);
};

describe.each(requests)('%s', (_, request) => {
  test('is retryable when nothing listens', async () => {
    const clickhouse = createClickHouse('http://127.0.0.1:1', { application: 'test' });
    closers.push(() => clickhouse.close());
    const error = await failureOf(request(clickhouse));
    expect(isClickHouseUnavailable(error)).toBe(true);
    // A network error without the store's name is reported as one of PostgreSQL.
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', message: 'ClickHouse did not answer' });
  });

  test('is retryable when the server does not answer in time', async () => {
    const error = await failureOf(request(await clientOf(() => {}, { timeoutMs: 100 })));
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
    expect(isClickHouseUnavailable(error)).toBe(true);
  });

  test('is retryable when the server hangs up', async () => {
    const clickhouse = await clientOf((message) => message.socket.destroy());
    expect(isClickHouseUnavailable(await failureOf(request(clickhouse)))).toBe(true);
  });

  test('is retryable when a proxy answers instead of ClickHouse', async () => {
    const clickhouse = await clientOf((_request, response) =>
      response.writeHead(502).end('<html>Bad Gateway</html>'),
    );
    const error = await failureOf(request(clickhouse));
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
    expect(isClickHouseUnavailable(error)).toBe(true);
  });

  test.each([
    [252, 'TOO_MANY_PARTS', true],
    [241, 'MEMORY_LIMIT_EXCEEDED', true],
    [210, 'NETWORK_ERROR', true],
    [216, 'QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING', true],
    [204, 'CANNOT_FSYNC', true],
    [999, 'KEEPER_EXCEPTION', true],
    [242, 'TABLE_IS_READ_ONLY', true],
    [285, 'TOO_FEW_LIVE_REPLICAS', true],
    [319, 'UNKNOWN_STATUS_OF_INSERT', true],
    [341, 'UNFINISHED', true],
    [164, 'READONLY', true],
    [394, 'QUERY_WAS_CANCELLED', true],
    [745, 'SERVER_OVERLOADED', true],
    [473, 'DEADLOCK_AVOIDED', true],
    [201, 'QUOTA_EXCEEDED', true],
    [62, 'SYNTAX_ERROR', false],
    [60, 'UNKNOWN_TABLE', false],
    [516, 'AUTHENTICATION_FAILED', false],
  ])('that ends with exception %i %s is retryable: %o', async (code, text, expected) => {
    const error = await failureOf(request(await clientOf(exception(code, text))));
    expect(error).toBeInstanceOf(ClickHouseError);
    expect(isClickHouseUnavailable(error)).toBe(expected);
  });
});

test('a retry reaches another replica than the one that has failed', async () => {
  // As behind a balancer of connections: whoever comes over the first one reaches the same replica.
  let first: Socket | null = null;
  const clickhouse = await clientOf((request, response) => {
    first ??= request.socket;
    if (request.socket === first) exception(242, 'TABLE_IS_READ_ONLY')(request, response);
    else response.writeHead(200).end('{"one":1}\n');
  });
  expect(isClickHouseUnavailable(await failureOf(clickhouse.rows(query)))).toBe(true);
  // The connection is idle again.
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(await clickhouse.rows(query)).toEqual([{ one: 1 }]);
});

test(
  'the first read of a reader ends in its time, and the next one succeeds',
  { timeout: 10_000 },
  async () => {
    let hangs = true;
    const listener: RequestListener = (request, response) => {
      const isOfProfile = request.headers['user-agent']?.includes('clickhouse-js') === true;
      const answer = `${JSON.stringify(isOfProfile ? profile : { one: 1 })}\n`;
      request.resume().on('end', () => hangs || response.end(answer));
    };
    const clickhouse = await clientOf(listener, { timeoutMs: 60_000, isReader: true });
    const error = await failureOf(clickhouse.rows(query, {}, { timeoutMs: 50 }));
    expect(error).toMatchObject({ message: 'ClickHouse did not answer within 50 ms' });
    hangs = false;
    expect(await clickhouse.rows(query)).toEqual([{ one: 1 }]);
  },
);

test('a response that is cut off is retryable', async () => {
  const clickhouse = await clientOf((message, response) => {
    response
      .writeHead(200, { 'content-length': '1000' })
      .write('{"one":1}\n', () => message.socket.destroy());
  });
  expect(isClickHouseUnavailable(await failureOf(clickhouse.rows(query)))).toBe(true);
});

test.each([
  [1, 2, 'rows'],
  [2, 2, 'retryable'],
])('a read whose connection is reset is sent once more: %i resets', async (resets, sent, outcome) => {
  let requests = 0;
  const clickhouse = await clientOf((request, response) => {
    requests += 1;
    if (requests <= resets) request.socket.destroy();
    else response.writeHead(200).end('{"one":1}\n');
  });
  const read = clickhouse.rows(query);
  if (outcome === 'rows') expect(await read).toEqual([{ one: 1 }]);
  else expect(isClickHouseUnavailable(await failureOf(read))).toBe(true);
  expect(requests).toBe(sent);
});

const tag = 'abcdefghijklmnop';
const message = 'Code: 241. DB::Exception: It failed. (MEMORY_LIMIT_EXCEEDED) (version 26.1.1.1)';
const exceptionAtEnd = `\r\n__exception__\r\n${tag}\r\n${message}\n${message.length + 1} ${tag}\r\n__exception__\r\n`;

test('an answer that ends with an error is an error, not the rows before it', async () => {
  const clickhouse = await clientOf((_request, response) =>
    response.writeHead(200, { 'x-clickhouse-exception-tag': tag }).end(`{"one":1}\n${exceptionAtEnd}`),
  );
  expect(await failureOf(clickhouse.rows(query))).toMatchObject({ code: '241' });
  const parts: unknown[] = [];
  const read = clickhouse.eachPart(query, {}, (rows) => void parts.push(rows));
  expect(await failureOf(read)).toMatchObject({ code: '241' });
});

const fileOf = async (clickhouse: ClickHouse): Promise<string> =>
  await text(
    await clickhouse.file(
      { name: 'test', sql: 'SELECT 1', rowBytes: 10, format: 'CSV', isSorted: false },
      {},
      { signal: new AbortController().signal },
    ),
  );

test('a file that is cut off names ClickHouse', async () => {
  const clickhouse = await clientOf(({ socket }, response) => {
    response.writeHead(200, { 'content-length': '1000' }).write('1\n', () => socket.destroy());
  });
  expect(await failureOf(fileOf(clickhouse))).toMatchObject({
    code: 'STORE_UNAVAILABLE',
    message: 'The answer of ClickHouse broke off',
  });
});

test.each([1, 7, 33, 36, 500])(
  'a file fails at an exception that arrives %i bytes at a time',
  async (size) => {
    // Lines that begin like the mark of an exception.
    const data = '\r\n__exception__\r\nabcdef\n'.repeat(20);
    const send = async (sent: string): Promise<string> => {
      const clickhouse = await clientOf((_request, response) => {
        response.writeHead(200, { 'x-clickhouse-exception-tag': tag });
        // A chunk of HTTP is a part of the answer.
        for (let at = 0; at < sent.length; at += size) response.write(sent.slice(at, at + size));
        response.end();
      });
      return await fileOf(clickhouse);
    };
    expect(await send(data)).toBe(data);
    for (let length = data.length - size; length < data.length; length += 1) {
      expect(await failureOf(send(data.slice(0, length) + exceptionAtEnd))).toMatchObject({
        code: 'STORE_UNAVAILABLE',
      });
    }
  },
);

test('a URL with a parameter that has no effect is refused', () => {
  const open = (parameters: string): unknown =>
    createClickHouse(`http://127.0.0.1:1/tds?${parameters}`, { application: 'test' });
  expect(() => open('request_timeout=1')).toThrow(/unknown parameter request_timeout/);
  open('session_id=s&clickhouse_setting_max_threads=1');
});

test('an insert whose connection is reset is not sent again', async () => {
  let requests = 0;
  const clickhouse = await clientOf((request) => {
    requests += 1;
    request.socket.destroy();
  });
  expect(isClickHouseUnavailable(await failureOf(clickhouse.insertEncoded('t', [], Buffer.from('x'))))).toBe(
    true,
  );
  expect(requests).toBe(1);
});

test('closing does not wait for a server that does not answer', async () => {
  let isAsked = false;
  const url = await serverOf(() => {
    isAsked = true;
  });
  const clickhouse = createClickHouse(url, { application: 'test', timeoutMs: 600_000 });
  const failure = failureOf(clickhouse.rows(query));
  await expect.poll(() => isAsked).toBe(true);
  await clickhouse.close();
  expect(await failure).toBeInstanceOf(Error);
});

test('a query that its caller aborts is not retryable', async () => {
  const clickhouse = await clientOf(() => {});
  const signal = AbortSignal.timeout(50);
  expect(isClickHouseUnavailable(await failureOf(clickhouse.rows(query, {}, { signal })))).toBe(false);
});

test('a response that does not have the shape of its query is not retryable', async () => {
  const answers: [string, string][] = [
    ['{"one":"1"}\n', 'ZodError'],
    ['{"one":1\n', 'SyntaxError'],
  ];
  for (const [body, name] of answers) {
    const clickhouse = await clientOf((_request, response) => response.writeHead(200).end(body));
    const error = await failureOf(clickhouse.rows(query));
    expect(error).toMatchObject({ name });
    expect(isClickHouseUnavailable(error)).toBe(false);
  }
});

test.each([
  new RangeError('Invalid array length'),
  new SyntaxError('Unexpected token'),
  new ReferenceError('x is not defined'),
  new TypeError('x is not a function'),
  new ZodError([]),
  new Error('connection timeout: socket hang up'),
  Object.assign(new Error('write after end'), { code: 'ERR_STREAM_WRITE_AFTER_END' }),
  new AppError('SHAPE_CHANGED', 'connection'),
  new AppError('STORE_UNAVAILABLE', 'PostgreSQL', { details: { store: 'PostgreSQL' } }),
  'ECONNREFUSED',
  null,
])('an unknown error is not retryable: %s', (error) => {
  expect(isClickHouseUnavailable(error)).toBe(false);
});

test.each(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_SOCKET'])(
  'a network error is retryable: %s',
  (code) => {
    expect(isClickHouseUnavailable(Object.assign(new Error('x'), { code }))).toBe(true);
  },
);

describe('settings of a request', () => {
  const settingsOf = async (options: {
    isReader?: boolean;
    cluster?: { name: string; insertQuorum: number };
  }): Promise<Record<string, string>[]> => {
    const seen: Record<string, string>[] = [];
    const url = await serverOf((message, response) => {
      seen.push(Object.fromEntries(new URL(message.url ?? '', 'http://server').searchParams));
      const isCheck = seen.length === 1 && options.isReader === true;
      message.resume().on('end', () => response.end(isCheck ? `${JSON.stringify(profile)}\n` : ''));
    });
    const clickhouse = createClickHouse(url, { application: 'test', timeoutMs: 5000, ...options });
    closers.push(() => clickhouse.close());
    if (options.isReader === true) await clickhouse.rows(query);
    else for (const [, request] of requests) await request(clickhouse);
    return seen;
  };
  const consistent = { async_insert: '0', insert_deduplicate: '0', select_sequential_consistency: '1' };
  const quorum = {
    insert_quorum: '2',
    insert_quorum_parallel: '0',
    insert_quorum_timeout: '30000',
    max_insert_threads: '1',
  };

  test('make a writer read what was written, on ClickHouse Cloud too', async () => {
    const seen = await settingsOf({});
    expect(seen).toHaveLength(requests.length);
    for (const one of seen) {
      expect(one).toMatchObject(consistent);
      expect(one).not.toHaveProperty('insert_quorum');
    }
  });

  test('make a writer on a cluster wait for a sequential quorum', async () => {
    const seen = await settingsOf({ cluster: { name: 'c', insertQuorum: 2 } });
    expect(seen).toHaveLength(requests.length);
    for (const one of seen) expect(one).toMatchObject({ ...consistent, ...quorum });
  });

  test('let a reader read from any replica', async () => {
    const seen = await settingsOf({ isReader: true, cluster: { name: 'c', insertQuorum: 2 } });
    const names = seen.flatMap((one) => Object.keys(one));
    expect(names.filter((name) => name in { ...consistent, ...quorum })).toEqual([]);
  });
});

describe('a statement on a cluster', () => {
  const onCluster = async (
    rows: readonly object[],
    run: (clickhouse: ClickHouse) => Promise<void>,
  ): Promise<{ sent: string; url: URL; error: unknown }> => {
    let sent = '';
    let path = '';
    const url = await serverOf((message, response) => {
      path = message.url ?? '';
      message.on('data', (chunk: Buffer) => (sent += chunk.toString()));
      message.on('end', () => response.end(rows.map((row) => `${JSON.stringify(row)}\n`).join('')));
    });
    const cluster = { name: 'c', insertQuorum: 2 };
    const clickhouse = createClickHouse(`${url}/tokens`, { application: 'test', timeoutMs: 5000, cluster });
    closers.push(() => clickhouse.close());
    const error = await failureOf(run(clickhouse));
    return { error, sent, url: new URL(path, url) };
  };
  const drop = async (clickhouse: ClickHouse): Promise<void> =>
    await clickhouse.ddl('-- why\nDROP TABLE IF EXISTS a SYNC');
  const replica = (host: string, status: number | null, error: string | null) => ({
    host,
    port: 9000,
    status,
    error,
    num_hosts_remaining: '0',
    num_hosts_active: '0',
  });

  test('is done when every replica has executed it', async () => {
    const { sent, url, error } = await onCluster([replica('one', 0, ''), replica('two', 0, '')], drop);
    expect(error).toBeNull();
    expect(sent).toBe("-- why\nDROP TABLE IF EXISTS a ON CLUSTER 'c' SYNC");
    expect(url.searchParams.get('default_format')).toBe('JSONEachRow');
  });

  test('names the replicas that failed or did not answer', async () => {
    const failing = [replica('one', 0, ''), replica('two', 57, 'exists'), replica('three', null, null)];
    const { error } = await onCluster(failing, drop);
    expect(error).toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
    expect(String(error)).toContain(
      "`DROP TABLE IF EXISTS a ON CLUSTER 'c' SYNC`: two:9000 failed: exists; three:9000 did not finish within 20 s",
    );
    expect(isClickHouseUnavailable(error)).toBe(true);
  });

  test('names the database of a table whose rows every replica waits for', async () => {
    const { sent, error } = await onCluster([replica('one', 0, '')], (clickhouse) =>
      clickhouse.syncReplicas('a'),
    );
    expect(error).toBeNull();
    expect(sent).toBe("SYSTEM SYNC REPLICA ON CLUSTER 'c' `tokens`.a");
  });
});

test.each([286, 289])('a request is repeated at once after exception %i', async (code) => {
  let failures = 3;
  const clickhouse = await clientOf((message, response) => {
    if (failures > 0) exception(code, 'BUSY')(message, response);
    else message.resume().on('end', () => response.end());
    failures -= 1;
  });
  await clickhouse.insert('t', columns, [{ one: 1 }]);
  expect(failures).toBe(-1);
});

test('a request that meets another insert for too long is retryable', async () => {
  const error = await failureOf(
    (await clientOf(exception(286, 'BUSY'), { timeoutMs: 300 })).command('SELECT 1'),
  );
  expect(isClickHouseUnavailable(error)).toBe(true);
});
