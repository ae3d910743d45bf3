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

test('on a terminal a log line is a sentence with its particulars', () => {
  const { log, lines } = terminal();
  log.info('not at this level');
  log.warn(
    { role: 'ingest', exit: 'SIGKILL', reason: undefined, restarts: 2 },
    'ingest ended; it is started again',
  );
  log.warn({ reason: 'connect ECONNREFUSED' }, 'waiting for PostgreSQL');
  log.error('nothing more');
  expect(lines()).toEqual([
    'TIME  ingest ended; it is started again (exit: SIGKILL, restarts: 2)',
    'TIME  waiting for PostgreSQL (reason: connect ECONNREFUSED)',
    'TIME  nothing more',
  ]);
});

test('an error is said in its words, a bug with where it is, and no secret at all', () => {
  const { log, lines } = terminal();
  const error = new Error('it is away');
  log.error({ err: error, name: 'pool' }, 'a resource did not close');
  log.warn({ password: 'open sesame', user: { api_key: 'k' } }, 'a user');
  log.fatal({ err: error }, 'stopping on an error');
  const [closed, user, fatal, ...stack] = lines();
  expect(closed).toBe('TIME  a resource did not close (it is away, name: pool)');
  expect(user).toBe('TIME  a user (password: [redacted], user: {"api_key":"[redacted]"})');
  expect(fatal).toBe('TIME  stopping on an error (Error: it is away');
  expect(stack.join('\n')).toContain('log.test.ts');
});
