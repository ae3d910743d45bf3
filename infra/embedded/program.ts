/** Longest that a simulated service takes to close. */
const GRACE_MS = 2000;

/**
 * The life of a simulated service as a program: says on standard output where it listens, and ends by a signal, with its
 * parent, or, where that is asked for, with its standard input.
 */
export function runAsProgram(
  service: { readonly url: string; close(): Promise<void> },
  options: { readonly watchStdin: boolean },
): void {
  process.stdout.write(`${JSON.stringify({ listening: true, url: service.url, pid: process.pid })}\n`);
  let isEnding = false;
  const end = (): void => {
    if (isEnding) return;
    isEnding = true;
    // What a service keeps is written before every change, so nothing is lost when closing takes too long.
    setTimeout(() => process.exit(0), GRACE_MS).unref();
    void service.close().then(() => process.exit(0));
  };
  process.on('SIGTERM', end);
  process.on('SIGINT', end);
  if (options.watchStdin) process.stdin.on('end', end).on('error', end).resume();
  const parent = process.ppid;
  setInterval(() => {
    if (process.ppid !== parent) end();
  }, 500).unref();
}
