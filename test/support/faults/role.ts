import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import { startProxy } from './proxy.ts';
import type { FaultProxy } from './proxy.ts';

const program = fileURLToPath(new URL('../../../infra/bin/tds.ts', import.meta.url));

/** The servers of a role, each behind its own proxy, so that a trap applies to one role's connections. */
export type Server = 'kafka' | 'clickhouse' | 'postgres' | 'node';

/** A role (or a long-running command) as its own process, as in production, so that real signals can be sent to it. */
export interface RoleProcess {
  readonly name: string;
  readonly pid: number;
  /** Resolves when the role reports that it is working; rejects if it exits before. */
  readonly ready: Promise<void>;
  /** Resolves with the exit code or signal. */
  readonly ended: Promise<string>;
  isRunning(): boolean;
  signal(signal: NodeJS.Signals): void;
  /** Prometheus text of the process. */
  metrics(): Promise<string>;
  /** The end of its output. */
  output(): string;
  stop(): Promise<void>;
}

/** `stop` also closes the proxies. */
export interface Role extends RoleProcess {
  readonly proxies: Readonly<Record<Server, FaultProxy>>;
}

const KEPT_OUTPUT = 20_000;

export async function startRole(
  name: RoleName | 'rebuild',
  env: Readonly<Record<string, string>>,
  args: readonly string[] = [],
): Promise<Role> {
  const { proxies, env: throughProxies } = await proxied(env);
  const role = spawnRole(name, throughProxies, args);
  return {
    ...role,
    proxies,
    async stop() {
      await role.stop();
      await Promise.all(Object.values(proxies).map((proxy) => proxy.close()));
    },
  };
}

export type RoleName = 'ingest' | 'project' | 'observe' | 'dispatch' | 'api';

/** A role that reaches the servers directly. */
export function spawnRole(
  name: RoleName | 'rebuild',
  env: Readonly<Record<string, string>>,
  args: readonly string[] = [],
): RoleProcess {
  const child = spawn(process.execPath, [program, name, ...args], {
    env: {
      PATH: process.env['PATH'] ?? '',
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] ?? '',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  let output = '';
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString()).slice(-KEPT_OUTPUT);
  };
  child.stdout?.on('data', keep);
  child.stderr?.on('data', keep);
  const ready = Promise.withResolvers<void>();
  ready.promise.catch(() => {});
  let metricsUrl = '';
  child.on('message', (message) => {
    if (typeof message !== 'object' || message === null || !('metrics_url' in message)) return;
    metricsUrl = String(message.metrics_url);
    ready.resolve();
  });
  let running = true;
  const ended = new Promise<string>((resolve) => {
    child.once('exit', (code, signal) => {
      running = false;
      ready.reject(new Error(`${name} exited before it was ready:\n${output}`));
      resolve(signal ?? `code ${code}`);
    });
  });
  return {
    name,
    pid: child.pid ?? 0,
    ready: ready.promise,
    ended,
    isRunning: () => running,
    signal: (signal) => void child.kill(signal),
    metrics: async () => await (await fetch(`${metricsUrl}/metrics`)).text(),
    output: () => output,
    async stop() {
      child.kill('SIGCONT');
      child.kill('SIGTERM');
      const killer = setTimeout(() => child.kill('SIGKILL'), 8000);
      await ended;
      clearTimeout(killer);
    },
  };
}

/** The settings with every server replaced by a proxy. */
async function proxied(env: Readonly<Record<string, string>>): Promise<{
  proxies: Record<Server, FaultProxy>;
  env: Record<string, string>;
}> {
  const before = async (name: string): Promise<{ proxy: FaultProxy; url: string }> => {
    const url = new URL(env[name] ?? '');
    const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
    url.port = String(proxy.port);
    return { proxy, url: url.href };
  };
  const broker = new URL(`kafka://${env['KAFKA_BROKERS'] ?? ''}`);
  const [clickhouse, postgres, node, kafka] = await Promise.all([
    before('CLICKHOUSE_URL'),
    before('DATABASE_URL'),
    before('STARKNET_RPC_URL'),
    startProxy({ host: broker.hostname, port: Number(broker.port), kafka: true }),
  ]);
  return {
    proxies: { kafka, clickhouse: clickhouse.proxy, postgres: postgres.proxy, node: node.proxy },
    env: {
      ...env,
      CLICKHOUSE_URL: clickhouse.url,
      DATABASE_URL: postgres.url,
      STARKNET_RPC_URL: node.url,
      KAFKA_BROKERS: `${kafka.host}:${kafka.port}`,
    },
  };
}
