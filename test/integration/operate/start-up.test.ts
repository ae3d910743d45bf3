import { spawn } from 'node:child_process';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { tds } from '../../support/tds.ts';

/** A role that is started before its stores says by name what it waits for, and ends at once when it is told to. */

let own: Isolated;
beforeAll(async () => {
  own = await isolated();
  expect(await tds({ ...own.env }, 'migrate')).toMatchObject({ code: 0 });
});
afterAll(async () => await own?.drop());

/** What a role logs until it waits, and how it ends on SIGTERM. */
async function startUp(
  role: string,
  env: Readonly<Record<string, string>>,
): Promise<{ waitsFor: string; code: number | null }> {
  const child = spawn(process.execPath, ['infra/bin/tds.ts', role], {
    env: { PATH: process.env['PATH'] ?? '', SECRET_KEY: '5c'.repeat(32), PORT: '0', ...own.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
  let logged = '';
  const waitsFor = await new Promise<string>((resolve) => {
    child.stdout.on('data', (chunk: Buffer) => {
      logged += chunk.toString();
      const [, what] = /waiting for ([^"]+)"/.exec(logged) ?? [];
      if (what !== undefined) resolve(what);
    });
    void ended.then(() => resolve(`nothing: it ended:\n${logged}`));
  });
  child.kill('SIGTERM');
  const killer = setTimeout(() => child.kill('SIGKILL'), 30_000);
  const code = await ended;
  clearTimeout(killer);
  return { waitsFor, code };
}

const nobody = '127.0.0.1:1';
test.each([
  ['Kafka', 'project', { KAFKA_BROKERS: nobody }],
  ['PostgreSQL', 'project', { DATABASE_URL: `postgres://a:b@${nobody}/tds` }],
  [
    'PostgreSQL and Kafka',
    'observe',
    { DATABASE_URL: `postgres://a:b@${nobody}/tds`, KAFKA_BROKERS: nobody },
  ],
])('%s, which %s needs, is waited for by name', async (what, role, env) => {
  const outcome = await startUp(role, { STARKNET_RPC_URL: `http://${nobody}`, ...env });
  expect(outcome).toEqual({ waitsFor: what, code: 0 });
});
