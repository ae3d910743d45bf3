import { pino } from 'pino';
import type { DestinationStream, Logger } from 'pino';
import { z } from 'zod';

export type { Logger } from 'pino';

/** Fields that hold secrets. `token` is not one of them: here it is the address of a contract. */
const secrets = [
  'password',
  'password_hash',
  'api_key',
  'session_token',
  'secret',
  'authorization',
  'cookie',
];

/** Logs JSON lines, to stdout by default. Secrets are redacted by field name on the first two levels of a line. */
export function createLogger(role: string, level: string, destination?: DestinationStream): Logger {
  const options = {
    level,
    base: { role, pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: secrets.flatMap((name) => [name, `*.${name}`]), censor: '[redacted]' },
  };
  return pino(options, destination ?? stdout());
}

const KEPT_BYTES = 1_000_000;

/** What cannot be written, as on a full disk, is kept for the next write, up to a limit, and neither ends nor holds a process. */
function stdout(): DestinationStream {
  const stream = pino.destination(1);
  const flushSync = stream.flushSync.bind(stream);
  stream.on('error', () => {
    // `flushSync` would repeat a failing write for ever when the process ends.
    Object.assign(stream, { maxLength: KEPT_BYTES, flushSync: () => {} });
  });
  stream.on('write', () => {
    Object.assign(stream, { maxLength: 0, flushSync });
  });
  return stream;
}

const logLine = z.looseObject({
  level: z.number(),
  time: z.iso.datetime(),
  msg: z.string().default(''),
  err: z.looseObject({ message: z.string(), stack: z.string().optional() }).optional(),
});
const FATAL = 60;

/** A destination for logs on a terminal: the time of day, the message, and its fields. */
export function readableLines(write: (line: string) => void): DestinationStream {
  return {
    write(json) {
      const { level, time, msg, err, role: _role, pid: _pid, ...rest } = logLine.parse(JSON.parse(json));
      const fields = Object.entries(rest).map(
        ([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`,
      );
      // The stack is of use for a bug only.
      if (err !== undefined) fields.unshift((level >= FATAL ? err.stack : undefined) ?? err.message);
      write(`${time.slice(11, 19)}  ${msg}${fields.length > 0 ? ` (${fields.join(', ')})` : ''}\n`);
    },
  };
}
