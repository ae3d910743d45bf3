import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import { startEmbedded } from '../embedded/index.ts';
import { startStarknet } from '../embedded/starknet/starknet.ts';
import { loadConfig, required } from '../config.ts';
import type { Config } from '../config.ts';
import { createLogger } from '../log.ts';
import { prepareStores } from './prepare.ts';
import { introduce } from './introduce.ts';
import { runProcess } from './process.ts';
import { readDemoFile, writeDemoFile, writeRunFile } from './run-file.ts';
import type { DemoFile } from './run-file.ts';
import { superviseRole } from './supervise.ts';
import type { SupervisedRole } from './supervise.ts';

/**
 * `npm start`: everything with one command. Parts whose URL is not set are started on loopback, the schema is migrated,
 * the roles run as processes of their own and are started again when they end.
 */
const roleNames = ['project', 'ingest', 'observe', 'api'] as const;
const ROLE_GRACE_MS = 4000;

const env: NodeJS.ProcessEnv = { ...process.env };
const log = createLogger('start', env['LOG_LEVEL'] ?? 'warn');
const say = (line: string): void => void process.stdout.write(`${line}\n`);

await runProcess(log, async ({ releasers, signal, fail }) => {
  const dataDir = resolve(loadConfig(env).dataDir);
  mkdirSync(dataDir, { recursive: true });
  env['DATA_DIR'] = dataDir;
  const began = performance.now();

  const embedded = await startEmbedded({ dataDir, log, env });
  releasers.push('embedded services', () => embedded.stop());
  Object.assign(env, embedded.urls);
  for (const service of embedded.services) {
    say(`  ${service.name.padEnd(12)} embedded, pid ${service.pid}`);
    void service.exited.then((exit) => {
      if (!signal.aborted)
        fail(new Error(`embedded ${service.name} ended (${exit.signal ?? `code ${exit.code}`})`));
    });
  }
  if ((env['STARKNET_RPC_URL'] ?? '') === '') {
    const chain = await startStarknet({ dataDir: join(dataDir, 'starknet'), log });
    releasers.push('simulated chain', () => chain.stop());
    env['STARKNET_RPC_URL'] = chain.url;
    env['INDEX_FROM'] ??= '0';
    say(`  ${'Starknet'.padEnd(12)} simulated chain at ${chain.url}`);
  }
  env['SECRET_KEY'] ??= keptSecretKey(dataDir);
  const demo = demoUser(env, dataDir);
  const config = loadConfig(env);
  env['API_DATABASE_URL'] = required(config, 'apiDatabaseUrl');

  await prepareStores(config, log, signal);
  say(`Stores are ready after ${seconds(began)}.`);

  const logs = join(dataDir, 'logs');
  const roles = roleNames.map((role) => superviseRole({ role, env: envOf(role, env), logs, log }));
  releasers.push(
    'roles',
    async () => void (await Promise.all(roles.map((role) => role.stop(ROLE_GRACE_MS)))),
  );
  await Promise.all(roles.map((role) => Promise.race([role.ready, aborted(signal)])));
  if (signal.aborted) return;

  const baseUrl = `http://${config.host}:${config.port}`;
  const { apiKey } = await introduce(config, log, {
    ...demo,
    apiKey: readDemoFile(dataDir)?.api_key ?? null,
  });
  const file: DemoFile = { base_url: baseUrl, ...demo, api_key: apiKey };
  writeDemoFile(dataDir, file);
  recordRun(dataDir, config, env, baseUrl, roles, embedded.services);
  say(`
Token data service: ${baseUrl}   (ready after ${seconds(began)}; Ctrl-C stops everything)
  user      ${file.username}
  password  ${file.password}
  API key   ${file.api_key}
  logs      ${logs}
These are kept in ${join(dataDir, 'demo.json')}. Try:
  curl -H "api-key: ${file.api_key}" "${baseUrl}/api/transfers/?token=0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d"`);
});

/** The API reads and appends commands: it is not given what could write to a read model. */
function envOf(role: (typeof roleNames)[number], settings: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  if (role !== 'api') return settings;
  const { DATABASE_URL: _database, CLICKHOUSE_URL: _clickhouse, ...rest } = settings;
  return rest;
}

function seconds(since: number): string {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((done) => signal.addEventListener('abort', () => done(), { once: true }));
}

/** An embedded start makes its own sealing key, once. */
function keptSecretKey(dataDir: string): string {
  const file = join(dataDir, 'secret.key');
  if (!existsSync(file)) writeFileSync(file, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
  return readFileSync(file, 'utf8').trim();
}

/** The configured admin, or `demo` with a generated password that is kept. */
function demoUser(settings: NodeJS.ProcessEnv, dataDir: string): { username: string; password: string } {
  const known = readDemoFile(dataDir);
  settings['ADMIN_USERNAME'] ??= known?.username ?? 'demo';
  settings['ADMIN_PASSWORD'] ??= known?.password ?? randomBytes(12).toString('base64url');
  return { username: settings['ADMIN_USERNAME'], password: settings['ADMIN_PASSWORD'] };
}

function recordRun(
  dataDir: string,
  config: Config,
  settings: NodeJS.ProcessEnv,
  baseUrl: string,
  roles: readonly SupervisedRole[],
  services: readonly { name: string; pid: number }[],
): void {
  const kept = [
    'STARKNET_RPC_URL',
    'KAFKA_BROKERS',
    'CLICKHOUSE_URL',
    'API_CLICKHOUSE_URL',
    'DATABASE_URL',
    'API_DATABASE_URL',
    'REDIS_URL',
    'SECRET_KEY',
    'INDEX_FROM',
    'KAFKA_TOPIC_PREFIX',
  ];
  writeRunFile(dataDir, {
    pid: process.pid,
    started_at: new Date().toISOString(),
    base_url: baseUrl,
    env: Object.fromEntries(
      kept.flatMap((name) => (settings[name] === undefined ? [] : [[name, settings[name]]])),
    ),
    pids: Object.fromEntries([
      ...roles.map((role) => [role.name, role.pid() ?? 0] as const),
      ...services.map((service) => [service.name, service.pid] as const),
    ]),
  });
}
