import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import { freePort } from '../../../infra/embedded/ports.ts';
import { checkSessions } from '../../../infra/postgres/check-sessions.ts';
import { createPool, isPostgresUnavailable } from '../../../infra/postgres/client.ts';
import { retry } from '../../../infra/retry.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';

const SENTENCE = /pooler in transaction or statement mode.*set pool_mode = session/;

let own: Isolated;
let folder: string;
let pooler: ChildProcess | null = null;
beforeAll(async () => {
  own = await isolated();
  folder = mkdtempSync(join(tmpdir(), 'tds-pgbouncer-'));
  // pgbouncer does not run as root.
  chmodSync(folder, 0o755);
});
afterEach(async () => {
  if (pooler?.exitCode !== null) return;
  pooler.kill('SIGINT');
  await once(pooler, 'exit');
});
afterAll(async () => {
  await own.drop();
  rmSync(folder, { recursive: true, force: true });
});

/** Starts pgbouncer before the test's database; returns the URL through it. */
async function startPooler(mode: 'session' | 'transaction' | 'statement'): Promise<string> {
  const url = new URL(own.env.DATABASE_URL);
  const { hostname, port, username, password } = url;
  const database = url.pathname.slice(1);
  const file = join(folder, `${mode}.ini`);
  const ownPort = await freePort();
  const server = `host=${hostname} port=${port} user=${username} password=${decodeURIComponent(password)}`;
  const lines = [
    `[databases]\n${database} = ${server}`,
    `[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = ${ownPort}\nunix_socket_dir =\nauth_type = any`,
    `pool_mode = ${mode}\n`,
  ];
  writeFileSync(file, lines.join('\n'));
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const PATH = `${process.env['PATH'] ?? ''}:/usr/sbin`;
  pooler = spawn('pgbouncer', [...user, file], { stdio: 'ignore', env: { ...process.env, PATH } });
  url.port = String(ownPort);
  const pool = createPool(url.href, { applicationName: 'test', max: 1 });
  await retry(() => pool.query('SELECT 1'), { isRetryable: () => true, deadlineMs: 10_000 });
  await pool.end();
  return url.href;
}

test('PostgreSQL itself, and a pooler in session mode, keep sessions', async () => {
  await checkSessions(own.env.DATABASE_URL);
  await checkSessions(await startPooler('session'));
});

test('a pooler in transaction mode is refused, also by a role at its start', async () => {
  const url = await startPooler('transaction');
  await expect(checkSessions(url)).rejects.toThrow(SENTENCE);
  const env = { ...process.env, ...own.env, DATABASE_URL: url, STARKNET_RPC_URL: 'http://127.0.0.1:1' };
  const role = promisify(execFile)(process.execPath, ['infra/bin/tds.ts', 'ingest'], {
    env,
    timeout: 30_000,
  });
  await expect(role).rejects.toMatchObject({ code: 1, stdout: expect.stringMatching(SENTENCE) });
});

test('a pooler in statement mode is refused', async () => {
  await expect(checkSessions(await startPooler('statement'))).rejects.toThrow(SENTENCE);
});

test('a server that does not answer is a retryable error', async () => {
  const failure = await checkSessions('postgres://someone:secret@127.0.0.1:1/none').catch(
    (error: unknown) => error,
  );
  expect(isPostgresUnavailable(failure)).toBe(true);
});
