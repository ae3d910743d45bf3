import { flushCompileCache } from 'node:module';
import { join } from 'node:path';

import { loadConfig, required, settings } from '../../config.ts';
import { startEmbedded, startFailure } from '../../embedded/index.ts';
import { recordRun, writeDemoFile } from '../../embedded/run-file.ts';
import type { DemoFile } from '../../embedded/run-file.ts';
import { storedSecret } from '../../embedded/secrets.ts';
import type { EmbeddedService } from '../../embedded/service.ts';
import type { Logger } from '../../log.ts';
import { ROLE_KILL_MS } from '../../shutdown.ts';
import type { ProcessContext } from '../process/run-process.ts';
import { demoUser } from './credentials.ts';
import { checkHost, urlHost } from './host.ts';
import { startSimulatedParts } from './simulated-parts.ts';
import { superviseRoles } from './supervise-roles.ts';

const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';

interface StartContext extends ProcessContext {
  readonly env: NodeJS.ProcessEnv;
  readonly log: Logger;
  readonly say: (line: string) => void;
}

/**
 * `npm start`: starts the parts whose URLs are unset on loopback, migrates the stores, supervises the roles, each in a
 * process of its own, and creates the first user.
 */
export async function startService(context: StartContext): Promise<void> {
  const { env, log, say, releasers, signal } = context;
  const startedAt = performance.now();
  // An empty variable counts as unset.
  for (const { env: name } of Object.values(settings)) if (env[name] === '') delete env[name];
  const { dataDir, host, port } = await checkHost(loadConfig(env));
  env['DATA_DIR'] = dataDir;
  env['PORT'] = String(port);
  const baseUrl = `http://${urlHost(host)}:${port}`;
  signal.addEventListener('abort', () => say('Stopping…'), { once: true });
  // Pushed first, so released last.
  releasers.push('last line', () => say('Stopped.'));

  /** Rewrites the run file; assigned once the roles run. */
  let record = (): void => {};
  const isExternalNode = env['STARKNET_RPC_URL'] !== undefined;
  say('Starting the stores…');
  const [services, { prepare, createDemoUser }] = await Promise.all([
    startParts(context, dataDir, () => record()),
    loadRest(),
  ]);
  env['SECRET_KEY'] ??= storedSecret(join(dataDir, 'secret.key'), 32);
  const demo = demoUser(env, dataDir);
  const config = loadConfig(env);
  env['API_DATABASE_URL'] = required(config, 'apiDatabaseUrl');
  await prepare(context, config, isExternalNode);
  say(`Stores are ready after ${seconds(startedAt)}. Starting the roles…`);

  const logs = join(dataDir, 'logs');
  const adminUsername = demo.username;
  const onStart = (): void => record();
  const roles = await superviseRoles({ dataDir, logs, env, config, adminUsername, log, onStart });
  releasers.push('roles', async () => {
    await Promise.all(roles.map((role) => role.stop(ROLE_KILL_MS)));
    say('Roles stopped. Stopping the stores…');
  });
  const processes = [...roles, ...services];
  record = () => recordRun({ dataDir, env, baseUrl, processes, log });
  const createUser = async (): ReturnType<typeof createDemoUser> => {
    // The command that creates the user needs no other role.
    await roles.find(({ name }) => name === 'project')?.ready;
    return await createDemoUser(config, log, demo);
  };
  const ready = Promise.all([createUser(), ...roles.map((role) => role.ready)]);
  const [created] = (await Promise.race([ready, aborted(signal)])) ?? [];
  if (signal.aborted || created === undefined) return;

  const { username, password } = demo;
  const file: DemoFile = { base_url: baseUrl, username, password, api_key: created.apiKey };
  writeDemoFile(dataDir, file);
  record();
  const shown = created.hasPassword ? file : { ...file, password: 'was changed since the first start' };
  say(readyText(shown, { logs, demoFile: join(dataDir, 'demo.json'), elapsed: seconds(startedAt) }));
}

/** Loads most of the program while the stores start, and lets the roles find it in the compile cache. */
async function loadRest() {
  const [{ prepare }, { createDemoUser }] = await Promise.all([
    import('./prepare.ts'),
    import('./create-demo-user.ts'),
  ]);
  flushCompileCache();
  return { prepare, createDemoUser };
}

/** Starts the embedded stores and the simulated parts side by side, and fails the process when one of them gives up. */
async function startParts(
  { env, log, say, releasers, signal, fail }: StartContext,
  dataDir: string,
  onRestart: () => void,
): Promise<EmbeddedService[]> {
  const show = (part: string, text: string): void => say(`  ${part.padEnd(12)} ${text}`);
  let startingSimulated = Promise.resolve<PromiseSettledResult<EmbeddedService[]>[]>([]);
  const onLocked = (): void => {
    const simulated = startSimulatedParts({ dataDir, env, log, onRestart, show });
    startingSimulated = Promise.allSettled([simulated]);
  };
  // All are awaited, even if one fails, so that the error names each cause and the others are stopped.
  const [embedded] = await Promise.allSettled([startEmbedded({ dataDir, log, env, onRestart, onLocked })]);
  const simulated = await startingSimulated;
  if (embedded.status === 'fulfilled') releasers.push('embedded services', () => embedded.value.stop());
  const parts = simulated.flatMap((one) => (one.status === 'fulfilled' ? one.value : []));
  for (const part of parts) releasers.push(`simulated ${part.name}`, () => part.stop());
  const failure = startFailure([embedded, ...simulated]);
  if (embedded.status === 'rejected' || failure !== null) throw failure;
  Object.assign(env, embedded.value.urls);
  for (const { name, pid } of embedded.value.services) show(name, `embedded, pid ${pid}`);
  const services = [...embedded.value.services, ...parts];
  for (const service of services) {
    void service.exited.then(({ code, signal: killedBy }) => {
      if (!signal.aborted) fail(new Error(`embedded ${service.name} exited (${killedBy ?? `code ${code}`})`));
    });
  }
  if (env['WEBHOOK_ALLOW_NETWORKS'] === undefined) {
    env['WEBHOOK_ALLOW_NETWORKS'] = '127.0.0.0/8,::1/128';
    show('Webhooks', 'may call this machine; WEBHOOK_ALLOW_NETWORKS changes that');
  }
  return services;
}

function readyText(
  file: DemoFile,
  { logs, demoFile, elapsed }: { logs: string; demoFile: string; elapsed: string },
): string {
  return `
Token data service: ${file.base_url}   (ready after ${elapsed}; Ctrl-C stops everything)
  user      ${file.username}
  password  ${file.password}
  API key   ${file.api_key}
  logs      ${logs}
Stored in ${demoFile}. Try:
  curl -H "api-key: ${file.api_key}" "${file.base_url}/api/transfers/?token=${STRK}"`;
}

function seconds(since: number): string {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`;
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((done) => signal.addEventListener('abort', () => done(), { once: true }));
}
