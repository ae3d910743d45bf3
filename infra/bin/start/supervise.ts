import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, copyFileSync, openSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { z } from 'zod';

import { AppError } from '../../../schemas/errors.ts';
import { makeClosedFolder } from '../../embedded/data-dir.ts';
import { sleep } from '../../lifecycle.ts';
import type { Logger } from '../../log.ts';
import { backoffMs } from '../../retry.ts';

const program = fileURLToPath(new URL('../tds.ts', import.meta.url));

/** V8 semi-space: with the default a backfill peaks 80 MiB higher in ingest and is no faster. */
const YOUNG_MIB = 8;
/**
 * glibc returns a large buffer to the system only if it was mapped on its own. By default it raises that threshold to
 * 32 MiB as buffers are freed, and keeps the memory of a batch. Backfilling 400,000 transfers, project peaked at 407 and
 * 445 MiB without, and at 350 MiB with this threshold.
 */
const MALLOC = { MALLOC_ARENA_MAX: '2', MALLOC_MMAP_THRESHOLD_: String(1 << 20) };

/** Sent by a role to its supervisor once, when it is ready. */
export const readyMessage = z.object({
  ready: z.literal(true),
  url: z.string().nullable(),
  metrics_url: z.string(),
});

/** Sent by a role to its supervisor when it fails. */
export const failedMessage = z.object({ failed: z.string() });
const roleMessage = z.union([readyMessage, failedMessage]);

const BASE_DELAY_MS = 500;
const MAX_DELAY_MS = 15_000;
/** After this uptime the restart delay starts again at its minimum. */
const HEALTHY_MS = 60_000;
const ROTATE_BYTES = 20_000_000;
const ROTATE_EVERY_MS = 30_000;
/** The exit code of a role for an error that a restart does not fix. */
const EXIT_PERMANENT = 1;

export interface SupervisedRole {
  readonly name: string;
  pid(): number | undefined;
  /** Resolves when the role is ready; rejects if it exits with an error that a restart does not fix. */
  readonly ready: Promise<void>;
  /** SIGTERM, then SIGKILL after the grace. */
  stop(graceMs: number): Promise<void>;
}

/**
 * Runs a role as a process and restarts it with backoff whenever it exits. Its output goes to `<logs>/<role>.log`, which is
 * rotated. The process exits when its supervisor is gone, as the IPC channel closes.
 */
export function superviseRole(options: {
  role: string;
  /** Called before each start. */
  env: () => Promise<NodeJS.ProcessEnv>;
  logs: string;
  log: Logger;
  /** Called after each start. */
  onStart?: () => void;
}): SupervisedRole {
  const { role, env, logs, log, onStart } = options;
  const file = join(logs, `${role}.log`);
  const stopping = new AbortController();
  let child: ChildProcess | null = null;
  let restarts = 0;
  let failure = '';
  const ready = Promise.withResolvers<void>();
  ready.promise.catch(() => {});
  const rotating = setInterval(() => rotate(file), ROTATE_EVERY_MS);
  rotating.unref();

  const onMessage = (raw: unknown): void => {
    const { data: message } = roleMessage.safeParse(raw);
    if (message === undefined) return;
    if ('failed' in message) {
      failure = message.failed;
      return;
    }
    ready.resolve();
  };

  const run = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted;) {
      const startedAt = Date.now();
      const own = await env();
      if (stopping.signal.aborted) return;
      failure = '';
      makeClosedFolder(logs);
      child = spawnRole(role, own, file);
      child.once('spawn', () => onStart?.());
      child.on('message', onMessage);
      const exit = await exitOf(child);
      if (stopping.signal.aborted) return;
      if (exit === `code ${EXIT_PERMANENT}`) {
        ready.reject(new AppError('CONFIG_INVALID', `${role} does not start: ${failure || `see ${file}`}`));
      }
      failures = Date.now() - startedAt > HEALTHY_MS ? 1 : failures + 1;
      restarts += 1;
      const delayMs = backoffMs(failures, { baseMs: BASE_DELAY_MS, maxMs: MAX_DELAY_MS }, Math.random());
      log.warn(
        { role, exit, reason: failure || undefined, restarts, delay_ms: delayMs, file },
        'role exited, restarting',
      );
      await sleep(delayMs, stopping.signal);
    }
  };

  const running = run();
  return {
    name: role,
    pid: () => child?.pid,
    ready: ready.promise,
    async stop(graceMs) {
      stopping.abort();
      clearInterval(rotating);
      const current = child;
      current?.kill('SIGTERM');
      const killer = setTimeout(() => current?.kill('SIGKILL'), graceMs);
      await running;
      clearTimeout(killer);
    },
  };
}

function spawnRole(role: string, env: NodeJS.ProcessEnv, file: string): ChildProcess {
  const output = openSync(file, 'a');
  const child = spawn(process.execPath, [`--max-semi-space-size=${YOUNG_MIB}`, program, role], {
    env: { ...MALLOC, ...env },
    stdio: ['ignore', output, output, 'ipc'],
    // A process group of its own: Ctrl-C reaches the supervisor alone, which stops the roles in order.
    detached: true,
  });
  closeSync(output);
  return child;
}

/** Resolves when the process ends, with its exit code, its signal, or the reason why it could not be started. */
function exitOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(signal ?? `code ${code}`));
  });
}

/** Copies the log aside and truncates it in place: the role keeps the file open for appending. */
function rotate(file: string): void {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size <= ROTATE_BYTES) return;
  try {
    copyFileSync(file, `${file}.1`);
  } catch {
    // On a full disk the old lines are dropped.
  }
  truncateSync(file);
}
