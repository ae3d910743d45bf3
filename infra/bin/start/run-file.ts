import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { z } from 'zod';

/** `DATA_DIR/run.json`: how `tds` finds an embedded start. It holds URLs with passwords: mode 0600. */
const runFile = z.object({
  pid: z.int(),
  started_at: z.string(),
  base_url: z.string(),
  /** Settings that the start filled in: URLs of the embedded parts, SECRET_KEY's place. */
  env: z.record(z.string(), z.string()),
  pids: z.record(z.string(), z.int()),
});
export type RunFile = z.infer<typeof runFile>;

/** `DATA_DIR/demo.json`: what a person needs for a first call. */
const demoFile = z.object({
  base_url: z.string(),
  username: z.string(),
  password: z.string(),
  api_key: z.string(),
});
export type DemoFile = z.infer<typeof demoFile>;

const read =
  <T>(name: string, schema: z.ZodType<T>) =>
  (dataDir: string): T | null => {
    let text: string;
    try {
      text = readFileSync(join(dataDir, name), 'utf8');
    } catch {
      return null;
    }
    const parsed = schema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : null;
  };

const write =
  <T>(name: string) =>
  (dataDir: string, content: T): void => {
    const target = join(dataDir, name);
    writeFileSync(`${target}.new`, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
    renameSync(`${target}.new`, target);
  };

export const readRunFile = read('run.json', runFile);
export const writeRunFile = write<RunFile>('run.json');
export const readDemoFile = read('demo.json', demoFile);
export const writeDemoFile = write<DemoFile>('demo.json');

/** True when the process that wrote the run file is still there. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

const startedAt = new Date().toISOString();

/** Writes the run file of this process. */
export function recordRun(
  dataDir: string,
  env: NodeJS.ProcessEnv,
  baseUrl: string,
  processes: readonly { name: string; pid: number | (() => number | undefined) }[],
): void {
  const names = [
    'STARKNET_RPC_URL',
    'STARKNET_WS_URL',
    'KAFKA_BROKERS',
    'KAFKA_SSL',
    'KAFKA_SSL_CA',
    'KAFKA_SSL_CERT',
    'KAFKA_SSL_KEY',
    'KAFKA_SASL_MECHANISM',
    'KAFKA_SASL_USERNAME',
    'KAFKA_SASL_PASSWORD',
    'KAFKA_ALLOW_UNSAFE_TOPICS',
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
    env: Object.fromEntries(names.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]]))),
    pids: Object.fromEntries(
      processes.map(({ name, pid }) => [name, (typeof pid === 'number' ? pid : pid()) ?? 0]),
    ),
  });
}
