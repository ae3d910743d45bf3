import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, openSync, closeSync, renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { z } from 'zod';

import { pause } from '../lifecycle.ts';
import type { Logger } from '../log.ts';

const program = fileURLToPath(new URL('./tds.ts', import.meta.url));

/** What a role tells its supervisor, once, when it does its work. */
export const readyMessage = z.object({
  ready: z.literal(true),
  url: z.string().nullable(),
  metrics_url: z.string(),
});

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** A role that lived so long is taken for healthy: its next restart is quick again. */
const HEALTHY_MS = 60_000;
const ROTATE_BYTES = 20_000_000;

export interface SupervisedRole {
  readonly name: string;
  pid(): number | undefined;
  restarts(): number;
  /** Where the role last said that its metrics are. */
  metricsUrl(): string | null;
  /** Resolves at the first start's readiness. */
  readonly ready: Promise<void>;
  /** SIGTERM, then SIGKILL after the grace. */
  stop(graceMs: number): Promise<void>;
}

/**
 * Runs a role as a process of its own and starts it again, with growing pauses, whenever it ends. Its output goes to
 * `<logs>/<role>.log`. The process ends by itself when its supervisor is gone: the IPC channel closes.
 */
export function superviseRole(options: {
  role: string;
  env: NodeJS.ProcessEnv;
  logs: string;
  log: Logger;
}): SupervisedRole {
  const { role, env, logs, log } = options;
  const file = join(logs, `${role}.log`);
  const stopping = new AbortController();
  let child: ChildProcess | null = null;
  let restarts = 0;
  let metricsUrl: string | null = null;
  const ready = Promise.withResolvers<void>();

  const run = async (): Promise<void> => {
    for (let failures = 0; !stopping.signal.aborted;) {
      const startedAt = Date.now();
      const exit = await runOnce();
      if (stopping.signal.aborted) return;
      failures = Date.now() - startedAt > HEALTHY_MS ? 1 : failures + 1;
      restarts += 1;
      const delay = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
      log.warn({ role, exit, restarts, delay_ms: delay, file }, `${role} ended; it is started again`);
      await pause(delay, stopping.signal);
    }
  };

  const runOnce = (): Promise<string> =>
    new Promise((resolve) => {
      mkdirSync(logs, { recursive: true });
      rotate(file);
      const output = openSync(file, 'a');
      child = spawn(process.execPath, ['--disable-warning=TimeoutNegativeWarning', program, role], {
        env,
        stdio: ['ignore', output, output, 'ipc'],
        // A process group of its own: Ctrl-C reaches the supervisor alone, which stops the roles in order.
        detached: true,
      });
      closeSync(output);
      child.on('message', (raw) => {
        const message = readyMessage.safeParse(raw);
        if (!message.success) return;
        metricsUrl = message.data.metrics_url;
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
      const current = child;
      current?.kill('SIGTERM');
      const killer = setTimeout(() => current?.kill('SIGKILL'), graceMs);
      await running;
      clearTimeout(killer);
    },
  };
}

function rotate(file: string): void {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size > ROTATE_BYTES) renameSync(file, `${file}.1`);
}
