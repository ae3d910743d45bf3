import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { lockDataDir } from '../../../infra/embedded/data-dir.ts';
import { freePort } from '../../../infra/embedded/ports.ts';
import { recordRun } from '../../../infra/embedded/run-file.ts';

/** A person's mistake is reported in one sentence, without a stack or a retry, and nothing is left running. */
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tds-mistakes-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function run(
  program: string,
  args: readonly string[],
  settings: Readonly<Record<string, string>>,
): Promise<{ code: number | null; out: string; err: string }> {
  const env: NodeJS.ProcessEnv = { DATA_DIR: join(folder, 'data'), ...settings };
  for (const name of ['PATH', 'HOME', 'JAVA_HOME']) if (process.env[name]) env[name] = process.env[name];
  const child = spawn(process.execPath, [join('infra/bin', program), ...args], { env });
  child.stdin.end();
  const [out, err] = [child.stdout, child.stderr].map((stream) => {
    let text = '';
    stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
    return () => text;
  }) as [() => string, () => string];
  const kill = setTimeout(() => child.kill('SIGTERM'), 30_000);
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  clearTimeout(kill);
  return { code, out: out(), err: err() };
}

const noStores = {
  KAFKA_BROKERS: '127.0.0.1:1',
  CLICKHOUSE_URL: 'http://default:x@127.0.0.1:1/tds',
  API_CLICKHOUSE_URL: 'http://api:x@127.0.0.1:1/tds',
  DATABASE_URL: 'postgres://postgres:x@127.0.0.1:1/tds',
  REDIS_URL: 'redis://127.0.0.1:1',
  STARKNET_RPC_URL: 'http://127.0.0.1:1',
};

function expectSentence({ code, out, err }: Awaited<ReturnType<typeof run>>, sentence: RegExp): void {
  expect(err).toMatch(sentence);
  expect(err + out).not.toMatch(/\n\s+at |"stack"/);
  expect(code).toBe(1);
}

test.each(['start.ts', 'tds.ts'])('%s names every wrong setting at once', async (program) => {
  const args = program === 'tds.ts' ? ['status'] : [];
  const answer = await run(program, args, { PORT: '99999', LOG_LEVEL: 'loud', REDIS_URL: 'http://x' });
  expectSentence(answer, /^Wrong settings:\n {2}REDIS_URL: .*\n {2}PORT: .*\n {2}LOG_LEVEL: .*\n$/);
});

test('a start fails before it starts anything when a port is in use', async () => {
  const squatter = createServer();
  const port = await freePort();
  await new Promise<void>((resolve) => squatter.listen(port, '127.0.0.1', resolve));
  try {
    const began = performance.now();
    const answer = await run('start.ts', [], { PORT: String(port) });
    expectSentence(
      answer,
      new RegExp(`^The API cannot listen on 127\\.0\\.0\\.1, port ${port} \\(EADDRINUSE\\): .*\\n$`),
    );
    expect(performance.now() - began).toBeLessThan(10_000);
  } finally {
    await new Promise((resolve) => squatter.close(resolve));
  }
});

test('a start on a port in use names the service that already runs in its data folder', async () => {
  const squatter = createServer();
  const port = await freePort();
  await new Promise<void>((resolve) => squatter.listen(port, '127.0.0.1', resolve));
  const dataDir = join(folder, 'running');
  const unlock = await lockDataDir(dataDir);
  try {
    const answer = await run('start.ts', [], { DATA_DIR: dataDir, PORT: String(port) });
    expectSentence(
      answer,
      new RegExp(`running is in use by process ${process.pid}: stop that process, or .*\\n$`),
    );
  } finally {
    unlock();
    await new Promise((resolve) => squatter.close(resolve));
  }
});

test('a role alone fails when its metrics port is in use', async () => {
  const squatter = createServer();
  const port = await freePort();
  await new Promise<void>((resolve) => squatter.listen(port, '127.0.0.1', resolve));
  try {
    const { code, out } = await run('tds.ts', ['ingest'], { ...noStores, METRICS_PORT: String(port) });
    expect(code).toBe(1);
    expect(out).toMatch(
      new RegExp(
        `"msg":"The metrics server cannot listen on 127\\.0\\.0\\.1, port ${port} \\(EADDRINUSE\\): `,
      ),
    );
    expect(out).not.toContain('at listen');
  } finally {
    await new Promise((resolve) => squatter.close(resolve));
  }
});

test('a start fails when the data folder cannot be created', async () => {
  const file = join(folder, 'file');
  writeFileSync(file, '');
  const answer = await run('start.ts', [], { ...noStores, DATA_DIR: join(file, 'data'), PORT: '0' });
  expectSentence(answer, /^DATA_DIR: .*file\/data cannot be written to \(ENOTDIR\)\n$/);
});

test.each([
  [['ingest'], /Nothing runs in /],
  [['status'], /^Nothing runs in .*: start it with `npm start`.*\n$/],
  [['migrate'], /^Nothing runs in .*: start it with `npm start`.*\n$/],
  [['users', 'add', 'someone'], /^No password was given\n$/],
  [['keys', 'add', 'someone', 'for nothing'], /^Nothing runs in .*: start it with `npm start`.*\n$/],
  [['reclassify', '0xnot'], /^Not an address: 0xnot\n$/],
  [['reclassify', '0x1'], /^Nothing runs in .*: start it with `npm start`.*\n$/],
  [['contracts', 'set', '0xnot', 'erc20'], /^Not an address: 0xnot\n$/],
  [['contracts', 'set', '0x1', 'erc9'], /^error: .* 'erc9' is invalid .* choices are erc20, .*\n$/],
  [['rebuild', 'tokens', '--no-swap', '--drop'], /^--drop needs a swap: .*\n$/],
  [['nonsense'], /^error: unknown command 'nonsense'\n/],
  [['keys', 'add'], /^error: missing required argument 'username'\n/],
] as const)('tds %j without what it needs', async (args, sentence) => {
  const { code, out, err } = await run('tds.ts', args, {});
  expect(err).toMatch(sentence);
  expect(out + err).not.toMatch(/\n\s+at |"stack"/);
  expect(code).toBe(1);
});

const stores = { DATABASE_URL: 'postgres://postgres:x@127.0.0.1:1/tds' };

test('a command uses the stores of the start that has locked the data folder', async () => {
  const dataDir = join(folder, 'started');
  const unlock = await lockDataDir(dataDir);
  recordRun({ dataDir, env: stores, baseUrl: 'http://none', processes: [], log: console });
  try {
    expectSentence(await run('tds.ts', ['migrate'], { DATA_DIR: dataDir }), /^KAFKA_BROKERS must be set/);
  } finally {
    unlock();
  }
});

test('a command does not take another process with the same id for the start', async () => {
  const dataDir = join(folder, 'reused');
  mkdirSync(dataDir);
  recordRun({ dataDir, env: stores, baseUrl: 'http://none', processes: [], log: console });
  writeFileSync(join(dataDir, 'lock'), `${process.pid} 1\n`);
  expectSentence(
    await run('tds.ts', ['migrate'], { DATA_DIR: dataDir }),
    new RegExp(`^Nothing runs in ${dataDir} \\(the last one, pid ${process.pid}, has exited\\): `),
  );
});

test('tds verify with a wrong option is inconclusive', async () => {
  const { code, err } = await run('tds.ts', ['verify', '--from', 'abc'], {});
  expect(err).toMatch(/^error: option '--from <height>' argument 'abc' is invalid\. /);
  expect(code).toBe(2);
  expect((await run('tds.ts', ['verify', '--help'], {})).code).toBe(0);
});

test('tds verify --node without a node is inconclusive', async () => {
  const { STARKNET_RPC_URL: _, ...withoutNode } = noStores;
  const { code, err } = await run('tds.ts', ['verify', '--node'], withoutNode);
  expect(err).toMatch(/^STARKNET_RPC_URL must be set: /);
  expect(code).toBe(2);
});

test('a projection that does not exist', async () => {
  const { code, out, err } = await run('tds.ts', ['project', 'transfer', 'tokens'], noStores);
  expect(out).toContain('Unknown projection transfer: use one of ');
  expect(out + err).not.toMatch(/\n\s+at |"stack"/);
  expect(code).toBe(1);
});

test('some read models of the chain without the others', async () => {
  const { code, out } = await run('tds.ts', ['project', 'indexed-blocks', 'tokens'], noStores);
  expect(out).toMatch(
    /Cannot project indexed-blocks alone: one process must write all tables of a block\. Also name [a-z, -]*\btransfers\b/,
  );
  expect(code).toBe(1);
});

test.each([['status'], ['keys', 'add', 'someone', 'thing'], ['reclassify', '0x1']])(
  'tds %s names the unavailable store',
  async (...args) => {
    expectSentence(
      await run('tds.ts', args, noStores),
      /^(PostgreSQL did not answer|Starknet node unreachable|Kafka did not answer).*\n$/,
    );
  },
);

test('an export to a file names the unavailable store, not the file', async () => {
  const answer = await run('tds.ts', ['catalogue', 'export', join(folder, 'out.json')], noStores);
  expectSentence(answer, /^PostgreSQL did not answer: .*\n$/);
});

test.each([
  [
    'rejects the password',
    { status: 403, code: 516, name: 'AUTHENTICATION_FAILED' },
    'Authentication failed: password is incorrect, or there is no user with such name.',
    /\nClickHouse rejected the connection: tds: Auth.* such name\. *; check the user, password and database.*\n$/,
  ],
  [
    'lacks a grant',
    { status: 500, code: 497, name: 'ACCESS_DENIED' },
    'Not enough privileges. To execute this query, you should have grant CREATE TABLE ON tds.*.',
    /\nThe user of ClickHouse lacks a privilege: tds: Not .* grant CREATE TABLE ON tds\.\*\. *\n$/,
  ],
])('a ClickHouse whose user %s', async (_, { status, code, name }, reason, sentence) => {
  const clickhouse = createHttpServer((_request, response) =>
    response
      .writeHead(status, { 'x-clickhouse-exception-code': code })
      .end(`Code: ${code}. DB::Exception: tds: ${reason} (${name}) (version 26.1.1.1)`),
  ).listen(0, '127.0.0.1');
  await once(clickhouse, 'listening');
  const { port } = clickhouse.address() as AddressInfo;
  const env = { ...noStores, CLICKHOUSE_URL: `http://tds:x@127.0.0.1:${port}/tds` };
  expectSentence(await run('tds.ts', ['migrate'], env), sentence);
  clickhouse.close();
});

/** The messages of PostgreSQL to a client that starts: an error in its protocol. */
function postgresError(fields: Readonly<Record<string, string>>): Buffer {
  const body = Object.entries(fields).map(([type, text]) => `${type}${text}\0`);
  const text = Buffer.from(`${body.join('')}\0`);
  const length = Buffer.alloc(4);
  length.writeInt32BE(text.length + 4);
  return Buffer.concat([Buffer.from('E'), length, text]);
}

test('a PostgreSQL whose user lacks a privilege', async () => {
  const reason = 'permission denied for database tds';
  const postgres = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.end(postgresError({ S: 'ERROR', C: '42501', M: reason })));
  }).listen(0, '127.0.0.1');
  await once(postgres, 'listening');
  const { port } = postgres.address() as AddressInfo;
  const env = { ...noStores, DATABASE_URL: `postgres://postgres:x@127.0.0.1:${port}/tds` };
  expectSentence(
    await run('tds.ts', ['builds'], env),
    new RegExp(`^The user of PostgreSQL lacks a privilege: ${reason}\n$`),
  );
  postgres.close();
});

test('a command logs to stderr, before the error that it ends with', async () => {
  const { code, out, err } = await run('tds.ts', ['verify'], { ...noStores, LOG_LEVEL: 'debug' });
  expect(err).toMatch(/^\{.*"msg":"could not record the verification"\}$/m);
  expect(err).toMatch(/\nPostgreSQL did not answer: .*\n$/);
  expect([code, out]).toEqual([2, '']);
});

test('a command goes on when nobody reads its stderr any more', async () => {
  const third = Promise.withResolvers<string>();
  let attempts = 0;
  const postgres = createServer((socket) => {
    socket.destroy();
    if (++attempts === 3) third.resolve('asks PostgreSQL again');
  }).listen(0, '127.0.0.1');
  await once(postgres, 'listening');
  const { port } = postgres.address() as AddressInfo;
  const env = {
    ...noStores,
    DATABASE_URL: `postgres://postgres:x@127.0.0.1:${port}/tds`,
    PATH: process.env['PATH'],
    DATA_DIR: join(folder, 'data'),
  };
  const child = spawn(process.execPath, ['infra/bin/tds.ts', 'migrate'], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  child.stderr.destroy();
  const ended = once(child, 'exit').then(() => 'ended');
  const seen = await Promise.race([third.promise, ended]);
  child.kill();
  await ended;
  postgres.close();
  expect(seen).toBe('asks PostgreSQL again');
});

/** Runs a shell command on a terminal, types the line at the prompt, and returns the output. */
async function onTerminal(command: string, line: string): Promise<string> {
  const env = { PATH: process.env['PATH'], DATA_DIR: join(folder, 'data') };
  const running = promisify(execFile)('script', ['-qc', command, '/dev/null'], { env });
  running.child.stdout?.on('data', (chunk: Buffer | string) => {
    if (chunk.toString().startsWith('Password of ')) running.child.stdin?.write(`${line}\r`);
  });
  const { stdout } = await running;
  return stdout;
}

test.each([
  ['piped', 'echo the-password | '],
  ['typed', ''],
])('a %s password is not shown on the terminal', async (_, pipe) => {
  const command = `${pipe}${process.execPath} infra/bin/tds.ts users add someone`;
  const output = await onTerminal(command, 'the-password');
  expect(output).toContain('Nothing runs in ');
  expect(output).not.toContain('the-password');
  expect(output.includes('Password of someone: ')).toBe(pipe === '');
});
