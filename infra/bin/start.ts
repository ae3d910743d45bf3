import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { accessSync, constants, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { AppError } from '../../schemas/errors.ts';
import { startEmbedded } from '../embedded/index.ts';
import { keepRunning } from '../embedded/keep-running.ts';
import { startIpfs } from '../embedded/ipfs/ipfs.ts';
import { startPrices, tokenListUrl } from '../embedded/prices/prices.ts';
import { portsOf, takePorts } from '../embedded/ports.ts';
import type { EmbeddedService } from '../embedded/service.ts';
import type { SimulatedOptions } from '../embedded/simulated.ts';
import { startStarknet } from '../embedded/starknet/starknet.ts';
import { loadConfig, required, settings } from '../config.ts';
import type { Config } from '../config.ts';
import { createLogger, readableLines } from '../log.ts';
import { ROLE_KILL_MS, START_SHUTDOWN_MS } from '../shutdown.ts';
import { rebuildOutdated } from './cli/rebuild.ts';
import { checkNode } from './start/check-node.ts';
import { prepareStores } from './start/prepare-stores.ts';
import { createDemoUser } from './start/create-demo-user.ts';
import { isPermanent, logFailure, runProcess } from './process/run-process.ts';
import type { ProcessContext } from './process/run-process.ts';
import { readDemoFile, writeDemoFile, writeRunFile } from './start/run-file.ts';
import type { DemoFile } from './start/run-file.ts';
import { earlyLogLevel } from './command-config.ts';
import { superviseRole } from './start/supervise.ts';

/**
 * `npm start`: everything with one command. Parts whose URL is not set are started on loopback, the schema is migrated,
 * the roles run as processes of their own and are started again when they end.
 */
const roleNames = ['project', 'ingest', 'observe', 'dispatch', 'api'] as const;
/** By this name the port of its metrics is kept. */
const metricsOf = (role: (typeof roleNames)[number]) => `metrics-${role}` as const;
const startedAt = new Date().toISOString();

// Ten processes load the same files: what one has compiled is kept for the others and for the next start (0.7 s of CPU
// each, from 1.1).
process.env['NODE_COMPILE_CACHE'] ??= fileURLToPath(
  new URL('../../node_modules/.cache/node', import.meta.url),
);

const env: NodeJS.ProcessEnv = { ...process.env };
const { stdout } = process;
const say = (line: string): void => void stdout.write(`${line}\n`);
const lines = stdout.isTTY ? readableLines((line) => void stdout.write(line)) : undefined;
const log = createLogger('start', earlyLogLevel(env, 'warn'), lines);
// Whoever read along is gone; the service is not.
stdout.on('error', () => {});

await runProcess(log, main, {
  shutdownMs: START_SHUTDOWN_MS,
  report(error) {
    if (isPermanent(error)) process.stderr.write(`${error.message}\n`);
    else logFailure(log, error);
  },
});

async function main({ releasers, signal, fail }: ProcessContext): Promise<void> {
  // An empty variable is an unset one.
  for (const { env: name } of Object.values(settings)) if (env[name] === '') delete env[name];
  const { dataDir, host, port } = await settle(loadConfig(env));
  env['DATA_DIR'] = dataDir;
  env['PORT'] = String(port);
  const baseUrl = `http://${shownHost(host)}:${port}`;
  const began = performance.now();

  /** Written anew whenever a process takes another's place. */
  let record = (): void => {};
  const onRestart = (): void => record();
  signal.addEventListener('abort', () => say('Stopping…'), { once: true });
  const embedded = await startEmbedded({ dataDir, log, env, onRestart });
  releasers.push('embedded services', () => embedded.stop());
  Object.assign(env, embedded.urls);
  const services = [...embedded.services];
  for (const service of services) say(`  ${service.name.padEnd(12)} embedded, pid ${service.pid}`);
  const isRealChain = env['STARKNET_RPC_URL'] !== undefined;
  // What links to the gateway is kept by clients: its port stays, too.
  const ports = await takePorts(dataDir, ['starknet', 'prices', 'ipfs', ...roleNames.map(metricsOf)]);
  const simulated = (
    name: 'starknet' | 'prices' | 'ipfs',
    start: (options: SimulatedOptions) => Promise<EmbeddedService>,
  ): Promise<EmbeddedService> =>
    keepRunning(() => start({ dataDir: join(dataDir, name), log, port: ports[name] }), { log, onRestart });
  const [chain, feed, gateway] = await Promise.all([
    isRealChain ? null : simulated('starknet', startStarknet),
    isRealChain || (env['PRICE_FEED_URL'] !== undefined && env['TOKEN_LIST_URL'] !== undefined)
      ? null
      : simulated('prices', startPrices),
    // It has the simulated chain's NFTs and no others.
    isRealChain || env['IPFS_GATEWAY_URL'] !== undefined ? null : simulated('ipfs', startIpfs),
  ]);
  if (chain !== null) {
    releasers.push('simulated chain', () => chain.stop());
    services.push(chain);
    env['STARKNET_RPC_URL'] = chain.url;
    env['INDEX_FROM'] ??= '0';
    say(`  ${'Starknet'.padEnd(12)} simulated chain at ${chain.url}`);
  }
  if (feed !== null) {
    releasers.push('simulated prices', () => feed.stop());
    services.push(feed);
    env['PRICE_FEED_URL'] ??= feed.url;
    env['TOKEN_LIST_URL'] ??= tokenListUrl(feed.url);
    say(`  ${'Prices'.padEnd(12)} simulated at ${feed.url}`);
  } else if (env['PRICE_FEED_URL'] === undefined) {
    say(`  ${'Prices'.padEnd(12)} none: set PRICE_FEED_URL and TOKEN_LIST_URL`);
  }
  if (gateway !== null) {
    releasers.push('simulated IPFS gateway', () => gateway.stop());
    services.push(gateway);
    env['IPFS_GATEWAY_URL'] = gateway.url;
    say(`  ${'IPFS'.padEnd(12)} simulated gateway at ${gateway.url}`);
  }
  for (const service of services) {
    void service.exited.then((exit) => {
      if (!signal.aborted)
        fail(new Error(`embedded ${service.name} ended (${exit.signal ?? `code ${exit.code}`})`));
    });
  }
  if (env['WEBHOOK_ALLOW_NETWORKS'] === undefined) {
    env['WEBHOOK_ALLOW_NETWORKS'] = '127.0.0.0/8,::1/128';
    say(`  ${'Webhooks'.padEnd(12)} may reach this machine: set WEBHOOK_ALLOW_NETWORKS for others, or none`);
  }
  env['SECRET_KEY'] ??= keptSecretKey(dataDir);
  const demo = demoUser(env, dataDir);
  const config = loadConfig(env);
  env['API_DATABASE_URL'] = required(config, 'apiDatabaseUrl');

  const { outdated } = await prepareStores(config, log, signal);
  const met = await checkNode(config);
  if (isRealChain) say(`  ${'Starknet'.padEnd(12)} ${met}`);
  // Nobody else could: the stores are up only as long as this process.
  if (outdated.length > 0) await rebuildOutdated(config, outdated, log, say);
  say(`Stores are ready after ${seconds(began)}.`);

  const namedPorts = config.metricsPort > 0 ? roleNames.map((_, at) => config.metricsPort + at) : [];
  env['OWN_PORTS'] = [...config.ownPorts, ...portsOf(dataDir), ...namedPorts].join(',');
  /** Another one where it was taken before the role was there. */
  const metricsPort = async (role: (typeof roleNames)[number], at: number): Promise<number> =>
    namedPorts[at] ?? (await takePorts(dataDir, [metricsOf(role)]))[metricsOf(role)];
  const logs = join(dataDir, 'logs');
  const roles = roleNames.map((role, at) =>
    superviseRole({
      role,
      env: async () => envOf(role, await metricsPort(role, at), env, demo.username),
      logs,
      log,
      onStart: () => record(),
    }),
  );
  releasers.push('roles', async () => void (await Promise.all(roles.map((role) => role.stop(ROLE_KILL_MS)))));
  record = () => recordRun(dataDir, env, baseUrl, [...roles, ...services]);
  await Promise.all(roles.map((role) => Promise.race([role.ready, aborted(signal)])));
  if (signal.aborted) return;

  const { apiKey } = await createDemoUser(config, log, demo);
  const file: DemoFile = {
    base_url: baseUrl,
    username: demo.username,
    password: demo.password,
    api_key: apiKey,
  };
  writeDemoFile(dataDir, file);
  record();
  say(`
Token data service: ${baseUrl}   (ready after ${seconds(began)}; Ctrl-C stops everything)
  user      ${file.username}
  password  ${file.password}
  API key   ${file.api_key}
  logs      ${logs}
These are kept in ${join(dataDir, 'demo.json')}. Try:
  curl -H "api-key: ${file.api_key}" "${baseUrl}/api/transfers/?token=0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d"`);
}

/** What the start needs for itself: a folder that it may write to, and a port that is free. */
async function settle(config: Config): Promise<{ dataDir: string; host: string; port: number }> {
  const dataDir = resolve(config.dataDir);
  try {
    mkdirSync(dataDir, { recursive: true });
    accessSync(dataDir, constants.W_OK);
  } catch (cause) {
    throw new AppError('CONFIG_INVALID', `DATA_DIR: ${dataDir} cannot be written to (${codeOf(cause)})`, {
      cause,
    });
  }
  const probe = createServer();
  try {
    probe.listen(config.port, config.host);
    await once(probe, 'listening');
  } catch (cause) {
    throw new AppError(
      'CONFIG_INVALID',
      `The API cannot listen on ${config.host}, port ${config.port} (${codeOf(cause)}): set PORT or HOST to others`,
      { cause },
    );
  }
  const address = probe.address();
  await new Promise((done) => probe.close(done));
  return {
    dataDir,
    host: config.host,
    port: typeof address === 'object' && address !== null ? address.port : config.port,
  };
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error);
}

/** As a person writes it into a URL: an address of this machine where the setting means all of them. */
function shownHost(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

/**
 * The API reads and appends commands: it is not given what could write to a read model. Each role has a metrics port of
 * its own.
 */
function envOf(
  role: (typeof roleNames)[number],
  metricsPort: number,
  given: NodeJS.ProcessEnv,
  adminUsername: string,
): NodeJS.ProcessEnv {
  const { ADMIN_USERNAME: _username, ADMIN_PASSWORD: _password, ...own } = given;
  own['METRICS_PORT'] = String(metricsPort);
  if (role !== 'api') return own;
  const { DATABASE_URL: _database, CLICKHOUSE_URL: _clickhouse, ...rest } = own;
  // Its /readyz waits until this user exists.
  return { ...rest, ADMIN_USERNAME: adminUsername };
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

/** The configured admin, or `demo` with a generated password that is kept; and his key, if one was made before. */
function demoUser(
  given: NodeJS.ProcessEnv,
  dataDir: string,
): { username: string; password: string; apiKey: string | null } {
  const known = readDemoFile(dataDir);
  const username = given['ADMIN_USERNAME'] ?? known?.username ?? 'demo';
  const own = known?.username === username ? known : null;
  const password = given['ADMIN_PASSWORD'] ?? own?.password ?? randomBytes(12).toString('base64url');
  return { username, password, apiKey: own?.api_key ?? null };
}

function recordRun(
  dataDir: string,
  given: NodeJS.ProcessEnv,
  baseUrl: string,
  processes: readonly { name: string; pid: number | (() => number | undefined) }[],
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
    'PRICE_FEED_URL',
    'TOKEN_LIST_URL',
    'IPFS_GATEWAY_URL',
    'OWN_PORTS',
  ];
  writeRunFile(dataDir, {
    pid: process.pid,
    started_at: startedAt,
    base_url: baseUrl,
    env: Object.fromEntries(kept.flatMap((name) => (given[name] === undefined ? [] : [[name, given[name]]]))),
    pids: Object.fromEntries(
      processes.map(({ name, pid }) => [name, (typeof pid === 'number' ? pid : pid()) ?? 0]),
    ),
  });
}
