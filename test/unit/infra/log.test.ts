import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { text } from 'node:stream/consumers';

import { expect, test } from 'vitest';

import { createLogger, readableLines } from '../../../infra/log.ts';

function terminal() {
  let text = '';
  const log = createLogger(
    'start',
    'warn',
    readableLines((line) => (text += line)),
  );
  return {
    log,
    lines: () =>
      text
        .replaceAll(/^\d\d:\d\d:\d\d /gm, 'TIME ')
        .split('\n')
        .slice(0, -1),
  };
}

test('formats a log line with its fields on a terminal', () => {
  const { log, lines } = terminal();
  log.info('not at this level');
  log.warn({ role: 'ingest', exit: 'SIGKILL', reason: undefined, restarts: 2 }, 'role exited, restarting');
  log.warn({ reason: 'connect ECONNREFUSED' }, 'waiting for PostgreSQL');
  log.error('nothing more');
  expect(lines()).toEqual([
    'TIME  role exited, restarting (exit: SIGKILL, restarts: 2)',
    'TIME  waiting for PostgreSQL (reason: connect ECONNREFUSED)',
    'TIME  nothing more',
  ]);
});

test('prints the message of an error, the stack of a bug, and no secret', () => {
  const { log, lines } = terminal();
  const error = new Error('it is away');
  log.error({ err: error, name: 'pool' }, 'could not close resource');
  log.warn({ password: 'open sesame', user: { api_key: 'k' } }, 'a user');
  log.fatal({ err: error }, 'process failed');
  const [closed, user, fatal, ...stack] = lines();
  expect(closed).toBe('TIME  could not close resource (it is away, name: pool)');
  expect(user).toBe('TIME  a user (password: [redacted], user: {"api_key":"[redacted]"})');
  expect(fatal).toBe('TIME  process failed (Error: it is away');
  expect(stack.join('\n')).toContain('log.test.ts');
});

test('a process goes on and ends where its log cannot be written', async () => {
  const program = `
    const { createLogger } = await import(${JSON.stringify(new URL('../../../infra/log.ts', import.meta.url).href)});
    const log = createLogger('test', 'info');
    log.info('one');
    setTimeout(() => {
      log.info('two');
      process.stderr.write('goes on');
    }, 50);`;
  const full = openSync('/dev/full', 'w');
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', full, 'pipe'],
    timeout: 10_000,
  });
  closeSync(full);
  const [printed, [code]] = await Promise.all([text(child.stderr!), once(child, 'exit')]);
  expect([printed, code]).toEqual(['goes on', 0]);
});
