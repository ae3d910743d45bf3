import { AppError } from '../../../schemas/errors.ts';
import { Releasers } from '../../lifecycle.ts';
import type { Logger } from '../../log.ts';
import { ROLE_SHUTDOWN_MS } from '../../shutdown.ts';

export interface ProcessContext {
  readonly releasers: Releasers;
  readonly signal: AbortSignal;
  readonly fail: (error: unknown) => void;
}

/**
 * A process that does one thing until it is told to stop: SIGTERM or SIGINT, or the end of the supervisor or the npm that
 * started it (its IPC channel closes, its parent is gone). One that a shell left in the background outlives it. What
 * `main` pushed is released in reverse order.
 *
 * Exit codes: 0 stopped on request, 1 a mistake that starting again does not mend, 75 anything else.
 *
 * @param options.report writes why it fails; by default to the log
 * @param options.shutdownMs after this the process exits even if a resource is still open
 */
export async function runProcess(
  log: Logger,
  main: (context: ProcessContext) => Promise<void>,
  {
    report = (error) => logFailure(log, error),
    shutdownMs = ROLE_SHUTDOWN_MS,
  }: { report?: (error: unknown) => void; shutdownMs?: number } = {},
): Promise<never> {
  dropKnownWarnings();
  const stop = new AbortController();
  const ended = Promise.withResolvers<number>();
  const releasers = new Releasers((name, error) =>
    log.error({ err: error, name }, 'a resource did not close'),
  );
  const fail = (error: unknown): void => {
    report(error);
    ended.resolve(isMistake(error) ? 1 : 75);
  };
  const onSignal = (): void => ended.resolve(0);
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('disconnect', onSignal);
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  const parent = process.ppid;
  // npm passes a signal on to its shell alone, which dies of it.
  const isHeld = process.send !== undefined || process.env['npm_lifecycle_event'] !== undefined;
  const watch = setInterval(() => {
    if (isHeld && process.ppid !== parent) ended.resolve(0);
  }, 500);

  main({ releasers, signal: stop.signal, fail }).catch(fail);
  const code = await ended.promise;
  clearInterval(watch);
  stop.abort();
  setTimeout(() => process.exit(code === 0 ? 75 : code), shutdownMs).unref();
  await releasers.releaseAll();
  process.exit(code);
}

/** A mistake of whoever set it up: the sentence says it all, and a stack would only hide it. */
export function logFailure(log: Logger, error: unknown): void {
  if (isMistake(error)) log.fatal({ code: error.code }, error.message);
  else log.fatal({ err: error }, 'stopping on an error');
}

/** Another start in the same place ends the same way. */
export function isMistake(error: unknown): error is AppError {
  return error instanceof AppError && !error.retryable;
}

let isDropping = false;

/** Node's own printing of warnings, but for one that kafkajs causes at every connection and nobody can act on. */
export function dropKnownWarnings(): void {
  if (isDropping) return;
  isDropping = true;
  const printers = process.listeners('warning');
  process.removeAllListeners('warning');
  process.on('warning', (warning) => {
    if (warning.name !== 'TimeoutNegativeWarning') for (const print of printers) print(warning);
  });
}
