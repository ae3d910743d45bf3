import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { z } from 'zod';

import { settings } from '../config.ts';
import type { Logger } from '../log.ts';

/** `DATA_DIR/run.json`: how `tds` finds an embedded start. It holds URLs with passwords: mode 0600. */
const runFile = z.object({
  pid: z.int(),
  started_at: z.string(),
  base_url: z.string(),
  /** The settings of the start, with those that it filled in: URLs of the embedded parts, SECRET_KEY. */
  env: z.record(z.string(), z.string()),
  pids: z.record(z.string(), z.int()),
});
type RunFile = z.infer<typeof runFile>;

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
    try {
      return schema.parse(JSON.parse(readFileSync(join(dataDir, name), 'utf8')));
    } catch {
      // Missing or damaged.
      return null;
    }
  };

const write =
  <T>(name: string) =>
  (dataDir: string, content: T): void => {
    const target = join(dataDir, name);
    writeFileSync(`${target}.new`, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
    renameSync(`${target}.new`, target);
  };

export const readRunFile = read('run.json', runFile);
const writeRunFile = write<RunFile>('run.json');
export const readDemoFile = read('demo.json', demoFile);
export const writeDemoFile = write<DemoFile>('demo.json');

const startedAt = new Date().toISOString();

/** Settings of one process, or of the start alone: a command must not take them over. */
const ownSettings: ReadonlySet<string> = new Set(
  [
    settings.dataDir,
    settings.port,
    settings.host,
    settings.metricsPort,
    settings.metricsHost,
    settings.logLevel,
    settings.adminUsername,
    settings.adminPassword,
  ].map(({ env }) => env),
);
const recorded = Object.values(settings)
  .map(({ env }) => env)
  .filter((name) => !ownSettings.has(name));

interface Run {
  readonly dataDir: string;
  readonly env: NodeJS.ProcessEnv;
  readonly baseUrl: string;
  readonly processes: readonly { name: string; pid: number | (() => number | undefined) }[];
  readonly log: Pick<Logger, 'warn'>;
}

/** Writes the run file of this process. A failure is only logged: on a full disk the service continues. */
export function recordRun({ dataDir, env, baseUrl, processes, log }: Run): void {
  const content: RunFile = {
    pid: process.pid,
    started_at: startedAt,
    base_url: baseUrl,
    env: Object.fromEntries(recorded.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]]))),
    pids: Object.fromEntries(
      processes.map(({ name, pid }) => [name, (typeof pid === 'number' ? pid : pid()) ?? 0]),
    ),
  };
  try {
    writeRunFile(dataDir, content);
  } catch (error) {
    log.warn({ err: error }, 'could not write run.json');
  }
}
