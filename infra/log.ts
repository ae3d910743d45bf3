import { pino } from 'pino';
import type { DestinationStream, Logger } from 'pino';
import { z } from 'zod';

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

/** JSON lines, to stdout by default. What carries a secret is cut by its name, on the first two levels of a line. */
export function createLogger(role: string, level = 'info', destination?: DestinationStream): Logger {
  const options = {
    level,
    base: { role, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: secrets.flatMap((name) => [name, `*.${name}`]), censor: '[redacted]' },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}

const logLine = z.looseObject({
  level: z.number(),
  time: z.iso.datetime(),
  msg: z.string().default(''),
  err: z.looseObject({ message: z.string(), stack: z.string().optional() }).optional(),
});
const FATAL = 60;

/** A destination for a log that a person reads on a terminal: the time of day, what happened, and its particulars. */
export function readableLines(write: (line: string) => void): DestinationStream {
  return {
    write(json) {
      const { level, time, msg, err, role: _role, pid: _pid, ...rest } = logLine.parse(JSON.parse(json));
      const particulars = Object.entries(rest).map(
        ([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
      );
      // Of a bug, where it is; of anything else the stack says nothing to who reads this.
      if (err !== undefined) particulars.unshift((level >= FATAL ? err.stack : undefined) ?? err.message);
      write(`${time.slice(11, 19)}  ${msg}${particulars.length > 0 ? ` (${particulars.join(', ')})` : ''}\n`);
    },
  };
}
