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
 * Runs `main` until SIGTERM, SIGINT or the end of the parent: its supervisor's IPC channel closes, or npm exits. A process
 * in the background of a shell outlives the shell. Releases what `main` pushed, in reverse order.
 *
 * Exit codes: 0 stopped on request, 1 an error that a restart does not fix, 75 any other error.
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
  const stop = new AbortController();
  const ended = Promise.withResolvers<number>();
  const releasers = new Releasers((name, error) =>
    log.error({ err: error, name }, 'could not close resource'),
  );
  const fail = (error: unknown): void => {
    report(error);
    ended.resolve(isPermanent(error) ? 1 : 75);
  };
  const onSignal = (): void => ended.resolve(0);
  process.on('SIGTERM', onSignal);
  process.on('SIGINT', onSignal);
  process.on('disconnect', onSignal);
  process.on('uncaughtException', fail);
  process.on('unhandledRejection', fail);
  const parent = process.ppid;
  // npm forwards a signal only to its shell, which exits: the parent process id changes.
  const hasSupervisor = process.send !== undefined || process.env['npm_lifecycle_event'] !== undefined;
  const watch = setInterval(() => {
    if (hasSupervisor && process.ppid !== parent) ended.resolve(0);
  }, 500);

  main({ releasers, signal: stop.signal, fail }).catch((error: unknown) => {
    // A stop ends what is still starting.
    if (!stop.signal.aborted) fail(error);
  });
  const code = await ended.promise;
  clearInterval(watch);
  stop.abort();
  setTimeout(() => process.exit(code === 0 ? 75 : code), shutdownMs).unref();
  await releasers.releaseAll();
  process.exit(code);
}

/** Logs a configuration error without its stack. */
export function logFailure(log: Logger, error: unknown): void {
  if (isPermanent(error)) log.fatal({ code: error.code }, error.message);
  else log.fatal({ err: error }, 'process failed');
}

/** True if a restart fails the same way: a configuration error. */
export function isPermanent(error: unknown): error is AppError {
  return error instanceof AppError && !error.retryable;
}
