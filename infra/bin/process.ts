import { Releasers } from '../lifecycle.ts';
import type { Logger } from '../log.ts';

/** How long a role may take to drain before it is ended all the same. */
const DRAIN_MS = 6000;

/**
 * A process that does one thing until it is told to stop: SIGTERM or SIGINT, or the end of the supervisor that started
 * it (its IPC channel closes, or its parent is gone). What `main` pushed is released in reverse order.
 *
 * Exit codes: 0 stopped on request, 1 a mistake that starting again does not mend, 75 anything else.
 */
export async function runProcess(
  log: Logger,
  main: (context: {
    releasers: Releasers;
    signal: AbortSignal;
    fail: (error: unknown) => void;
  }) => Promise<void>,
): Promise<never> {
  const stop = new AbortController();
  const ended = Promise.withResolvers<number>();
  const releasers = new Releasers((name, error) =>
    log.error({ err: error, name }, 'a resource did not close'),
  );
  const fail = (error: unknown): void => {
    log.fatal({ err: error }, 'stopping on an error');
    ended.resolve(75);
  };
  const onSignal = (): void => ended.resolve(0);
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('disconnect', onSignal);
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  const parent = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid !== parent) ended.resolve(0);
  }, 500);

  main({ releasers, signal: stop.signal, fail }).catch(fail);
  const code = await ended.promise;
  clearInterval(watch);
  stop.abort();
  setTimeout(() => process.exit(code === 0 ? 75 : code), DRAIN_MS).unref();
  await releasers.releaseAll();
  process.exit(code);
}
