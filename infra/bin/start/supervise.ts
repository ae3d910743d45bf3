import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, copyFileSync, openSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { z } from 'zod';

import { AppError } from '../../../schemas/errors.ts';
import { makeClosedFolder } from '../../embedded/data-dir.ts';
import { pause } from '../../lifecycle.ts';
import type { Logger } from '../../log.ts';

const program = fileURLToPath(new URL('../tds.ts', import.meta.url));

/** Room for young objects, thrice: with V8's own bound a backfill peaks 80 MiB higher in ingest and is no faster. */
const YOUNG_MIB = 8;
/**
 * glibc gives large buffers back to the system only while they are mapped one by one; left alone it raises its bound to
 * 32 MiB with the first that are freed, and keeps what a batch took. Backfilling 400,000 transfers, project peaked at 407
 * and 445 MiB without, and at 350 with a lower bound.
 */
const MALLOC = { MALLOC_ARENA_MAX: '2', MALLOC_MMAP_THRESHOLD_: String(1 << 20) };

/** What a role tells its supervisor, once, when it does its work. */
export const readyMessage = z.object({
  ready: z.literal(true),
  url: z.string().nullable(),
  metrics_url: z.string(),
});

/** What a role tells its supervisor when it ends by itself. */
export const failedMessage = z.object({ failed: z.string() });
const roleMessage = z.union([readyMessage, failedMessage]);

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** A role that lived so long is taken for healthy: its next restart is quick again. */
const HEALTHY_MS = 60_000;
const ROTATE_BYTES = 20_000_000;
const ROTATE_EVERY_MS = 30_000;
/** The exit code of a role for a mistake that another start does not mend. */
const MISTAKE = 1;

export interface SupervisedRole {
  readonly name: string;
  pid(): number | undefined;
  restarts(): number;
  /** Where the role last said that its metrics are. */
  metricsUrl(): string | null;
  /** Resolves at the first readiness; rejects when it never was ready and says that another start cannot help. */
  readonly ready: Promise<void>;
  /** SIGTERM, then SIGKILL after the grace. */
  stop(graceMs: number): Promise<void>;
}

/**
 * Runs a role as a process of its own and starts it again, with growing pauses, whenever it ends. Its output goes to
 * `<logs>/<role>.log`, which is kept short. The process ends by itself when its supervisor is gone: the IPC channel closes.
 */
export function superviseRole(options: {
  role: string;
  /** Asked before each start. */
  env: () => Promise<NodeJS.ProcessEnv>;
  logs: string;
  log: Logger;
  /** Told after each start. */
  onStart?: () => void;
}): SupervisedRole {
  const { role, env, logs, log, onStart } = options;
  const file = join(logs, `${role}.log`);
  const stopping = new AbortController();
  let child: ChildProcess | null = null;
  let restarts = 0;
  let metricsUrl: string | null = null;
  let complaint = '';
  const ready = Promise.withResolvers<void>();
  ready.promise.catch(() => {});
  const rotating = setInterval(() => rotate(file), ROTATE_EVERY_MS);
  rotating.unref();

  const run = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted;) {
      const startedAt = Date.now();
      const own = await env();
      if (stopping.signal.aborted) return;
      const exit = await runOnce(own);
      if (stopping.signal.aborted) return;
      if (exit === `code ${MISTAKE}`) {
        ready.reject(new AppError('CONFIG_INVALID', `${role} does not start: ${complaint || `see ${file}`}`));
      }
      failures = Date.now() - startedAt > HEALTHY_MS ? 1 : failures + 1;
      restarts += 1;
      const delay = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
      log.warn(
        { role, exit, reason: complaint || undefined, restarts, delay_ms: delay, file },
        `${role} ended; it is started again`,
      );
      await pause(delay, stopping.signal);
    }
  };

  const runOnce = (own: NodeJS.ProcessEnv): Promise<string> =>
    new Promise((resolve) => {
      makeClosedFolder(logs);
      complaint = '';
      const output = openSync(file, 'a');
      child = spawn(process.execPath, [`--max-semi-space-size=${YOUNG_MIB}`, program, role], {
        env: { ...MALLOC, ...own },
        stdio: ['ignore', output, output, 'ipc'],
        // A process group of its own: Ctrl-C reaches the supervisor alone, which stops the roles in order.
        detached: true,
      });
      closeSync(output);
      child.once('spawn', () => onStart?.());
      child.on('message', (raw) => {
        const { data: message } = roleMessage.safeParse(raw);
        if (message === undefined) return;
        if ('failed' in message) {
          complaint = message.failed;
          return;
        }
        metricsUrl = message.metrics_url;
        ready.resolve();
      });
      child.once('error', (error) => resolve(error.message));
      child.once('exit', (code, signal) => resolve(signal ?? `code ${code}`));
    });

  const running = run();
  return {
    name: role,
    pid: () => child?.pid,
    restarts: () => restarts,
    metricsUrl: () => metricsUrl,
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

/** A role keeps its file open and appends: what it has written is copied aside, and the file begins anew. */
function rotate(file: string): void {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size <= ROTATE_BYTES) return;
  try {
    copyFileSync(file, `${file}.1`);
  } catch {
    // A full disk: room matters more than old lines.
  }
  truncateSync(file);
}
