import { pino } from 'pino';
import type { Logger } from 'pino';

export type { Logger } from 'pino';

/** Names under which secrets travel. A `token` is a contract's address here, and is not one. */
const secrets = [
  'password',
  'password_hash',
  'api_key',
  'session_token',
  'secret',
  'authorization',
  'cookie',
];

/** JSON lines to stdout. What carries a secret is cut by its name, on the first two levels of a line. */
export function createLogger(role: string, level = 'info'): Logger {
  return pino({
    level,
    base: { role, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: secrets.flatMap((name) => [name, `*.${name}`]), censor: '[redacted]' },
  });
}
