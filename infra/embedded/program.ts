/** A simulated service that takes longer to close is ended. */
const GRACE_MS = 2000;

/** A command-line option that is a number of at least 0. */
export function readNumber(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isFinite(value) || value < 0)
    throw new RangeError(`--${name} must be a number of at least 0, not ${text}`);
  return value;
}

/** Prints the URL of a simulated service on standard output, and closes it on a signal or when the parent process exits. */
export function runAsProgram(
  service: { readonly url: string; close(): Promise<void> },
  /** `watchStdin`: closes it when standard input ends, too. */
  options: { readonly watchStdin: boolean },
): void {
  // Read before the line is printed: whoever reads that line may end the parent at once.
  const parent = process.ppid;
  process.stdout.write(`${JSON.stringify({ listening: true, url: service.url, pid: process.pid })}\n`);
  let isEnding = false;
  const end = (): void => {
    if (isEnding) return;
    isEnding = true;
    // State is written before every change, so nothing is lost when closing takes too long.
    setTimeout(() => process.exit(0), GRACE_MS).unref();
    void service.close().then(() => process.exit(0));
  };
  process.on('SIGTERM', end);
  process.on('SIGINT', end);
  if (options.watchStdin) process.stdin.on('end', end).on('error', end).resume();
  setInterval(() => {
    if (process.ppid !== parent) end();
  }, 500).unref();
}
