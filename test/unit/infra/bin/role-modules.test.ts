import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

import { expect, test } from 'vitest';

/** Prints the URL of each module that is loaded. */
const hook = `data:text/javascript,${encodeURIComponent(
  "import { registerHooks } from 'node:module'; registerHooks({ load(url, context, next) { process._rawDebug(url); return next(url, context); } });",
)}`;

/** Settings of stores where nothing listens: the role waits for them once it is loaded. */
const settings = {
  DATABASE_URL: 'postgres://127.0.0.1:1/none',
  KAFKA_BROKERS: '127.0.0.1:1',
  CLICKHOUSE_URL: 'http://127.0.0.1:1',
  STARKNET_RPC_URL: 'http://127.0.0.1:1',
  METRICS_PORT: '0',
};

test("a role's process loads neither the other roles nor the commands", async () => {
  const child = spawn(process.execPath, ['--import', hook, 'infra/bin/tds.ts', 'ingest'], {
    env: { PATH: process.env['PATH'], ...settings },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const loaded: string[] = [];
  for await (const url of createInterface({ input: child.stderr })) {
    loaded.push(url);
    if (url.endsWith('pipeline/ingest/ingest.ts')) child.kill('SIGKILL');
  }
  const of = (part: string): string[] => loaded.filter((url) => url.includes(part));
  expect(of('infra/bin/roles/').map((url) => url.replace(/^.*roles\//, ''))).toEqual(
    expect.arrayContaining(['index.ts', 'ingest.ts']),
  );
  expect(of('infra/bin/roles/api.ts')).toEqual([]);
  expect(of('infra/bin/cli/')).toEqual([]);
  expect(of('node_modules/koa/')).toEqual([]);
});
