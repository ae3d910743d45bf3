import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

import { AppError } from '../../../schemas/errors.ts';
import type { RunRebuild } from './operations.ts';

const PROGRAM = fileURLToPath(new URL('../tds.ts', import.meta.url));

/**
 * Runs `tds rebuild` as a process of its own, so that it takes neither the time nor the memory of the projections that this
 * process runs.
 *
 * @param env the settings of this process
 */
export function rebuildProcesses(env: NodeJS.ProcessEnv): RunRebuild {
  return async ({ projection, swap, requestedBy }, signal) => {
    const options = ['--requested-by', requestedBy, ...(swap ? [] : ['--no-swap'])];
    const child = spawn(process.execPath, [PROGRAM, 'rebuild', projection, ...options], {
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
      if (child.exitCode === 0) return printed.trim();
      const [reason = `tds rebuild ended with ${child.exitCode ?? child.signalCode}`] = failed
        .trim()
        .split('\n')
        .slice(-1);
      throw new AppError('CONFLICT', reason);
    } finally {
      signal.removeEventListener('abort', stop);
    }
  };
}

/** The streams are typed as missing where a process has a channel. */
async function textOf(stream: Readable | null): Promise<string> {
  return stream === null ? '' : await text(stream);
}
