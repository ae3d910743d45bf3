import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { z } from 'zod';

/** The whole service, started as `npm start` does: `node infra/bin/start.ts` with these settings. */
export interface RunningService {
  readonly pid: number;
  readonly baseUrl: string;
  readonly demo: z.infer<typeof demoFile>;
  /** Its output so far. */
  printed(): string;
  /** Pids of the roles and embedded services, by name. */
  pids(): Record<string, number>;
  /** The URLs of its stores and the like. */
  settings(): Record<string, string>;
  get(
    path: string,
    headers?: Record<string, string>,
  ): Promise<{ status: number; headers: Headers; json: unknown }>;
  /** Sends a signal to the supervisor only and waits until it exits. Returns the milliseconds this took. */
  stop(signal?: NodeJS.Signals): Promise<number>;
}

const demoFile = z.object({
  base_url: z.string(),
  username: z.string(),
  password: z.string(),
  api_key: z.string(),
});
const runFile = z.object({
  pids: z.record(z.string(), z.number()),
  env: z.record(z.string(), z.string()),
});

export async function startService(
  dataDir: string,
  settings: Readonly<Record<string, string>>,
  { withinMs = 90_000 }: { withinMs?: number } = {},
): Promise<RunningService> {
  const env: NodeJS.ProcessEnv = {};
  // The service gets no settings of the test process, only what every program needs.
  for (const name of ['PATH', 'HOME', 'LANG', 'TMPDIR', 'JAVA_HOME', 'NODE_COMPILE_CACHE'])
    if (process.env[name]) env[name] = process.env[name];
  const child = spawn(process.execPath, ['infra/bin/start.ts'], {
    env: { ...env, DATA_DIR: dataDir, ...settings },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const startedAt = performance.now();
  while (!output.includes('Token data service: ')) {
    if (child.exitCode !== null) throw new Error(`the service exited:\n${output}`);
    if (performance.now() - startedAt > withinMs) {
      child.kill('SIGTERM');
      throw new Error(`the service was not ready after ${withinMs} ms:\n${output}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const read = <T>(name: string, schema: z.ZodType<T>): T =>
    schema.parse(JSON.parse(readFileSync(join(dataDir, name), 'utf8')));
  const demo = read('demo.json', demoFile);
  return {
    pid: child.pid ?? 0,
    baseUrl: demo.base_url,
    demo,
    printed: () => output,
    pids: () => read('run.json', runFile).pids,
    settings: () => read('run.json', runFile).env,
    async get(path, headers = { 'api-key': demo.api_key }) {
      const response = await fetch(demo.base_url + path, { headers });
      return { status: response.status, headers: response.headers, json: await response.json() };
    },
    async stop(signal = 'SIGINT') {
      const from = performance.now();
      child.kill(signal);
      await ended;
      return performance.now() - from;
    },
  };
}

/** Retries `look` until it does not throw; after `withinMs` throws its last error. */
export async function eventually<T>(look: () => Promise<T>, withinMs = 120_000, everyMs = 100): Promise<T> {
  const startedAt = performance.now();
  for (;;) {
    try {
      return await look();
    } catch (error) {
      if (performance.now() - startedAt > withinMs) throw error;
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  }
}

/** What is compared of a transfer as it is served. */
export const servedTransfer = z.object({
  token_address: z.string(),
  from_address: z.string(),
  to_address: z.string(),
  value: z.string(),
  nft_token_id: z.string(),
  txhash: z.string(),
  block: z.number(),
  event_index: z.number(),
  fee: z.string(),
  fee_unit: z.string(),
  is_fee: z.boolean(),
  execution_status: z.string(),
  kind: z.string(),
  status: z.string(),
  timestamp: z.string(),
});
export type ServedTransfer = z.infer<typeof servedTransfer>;

const page = z.object({
  links: z.object({ next_cursor: z.string().nullish() }),
  count: z.number(),
  results: z.array(servedTransfer),
});

/** All rows of a filter, paged by cursor, with the `count` of the first page. */
export async function allTransfers(
  service: Pick<RunningService, 'get'>,
  filter: string,
): Promise<{ count: number; rows: ServedTransfer[] }> {
  const rows: ServedTransfer[] = [];
  let count = -1;
  for (let cursor: string | null | undefined = ''; cursor !== null && cursor !== undefined;) {
    const suffix: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const { status, json } = await service.get(`/api/transfers/?${filter}&limit=100${suffix}`);
    if (status !== 200) throw new Error(`${status}: ${JSON.stringify(json)}`);
    const parsed = page.parse(json);
    if (count < 0) count = parsed.count;
    rows.push(...parsed.results);
    cursor = parsed.links.next_cursor;
  }
  return { count, rows };
}
