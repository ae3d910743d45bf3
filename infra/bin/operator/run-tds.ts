import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

import { AppError } from '../../../schemas/errors.ts';
import type { RunTds } from './operations.ts';

const PROGRAM = fileURLToPath(new URL('../tds.ts', import.meta.url));

/**
 * Runs `tds` as a process of its own, so that it takes neither the time nor the memory of the projections that this process
 * runs.
 *
 * @param env the settings of this process
 */
export function tdsProcesses(env: NodeJS.ProcessEnv): RunTds {
  return async (args, signal, doneCodes = [0]) => {
    const child = spawn(process.execPath, [PROGRAM, ...args], {
      env,
      // With the channel, it ends when this process is killed.
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    const stop = (): void => void child.kill('SIGTERM');
    signal.addEventListener('abort', stop, { once: true });
    try {
      const [printed, failed] = await Promise.all([
        textOf(child.stdout),
        textOf(child.stderr),
        child.exitCode === null && child.signalCode === null ? once(child, 'close') : null,
      ]);
      if (child.exitCode !== null && doneCodes.includes(child.exitCode)) return printed.trim();
      // A process that was killed gave no reason: its last line may be a log line. A bug is reported with its stack.
      const lines = child.exitCode === null ? [] : failed.trim().split('\n');
      const reason = lines.findLast((line) => !line.startsWith('    at '));
      throw new AppError(
        'CONFLICT',
        reason || `tds ${args.join(' ')} ended with ${child.exitCode ?? child.signalCode}`,
      );
    } finally {
      signal.removeEventListener('abort', stop);
    }
  };
}

/** The streams are typed as missing where a process has a channel. */
async function textOf(stream: Readable | null): Promise<string> {
  return stream === null ? '' : await text(stream);
}
