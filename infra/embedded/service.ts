import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { AppError } from '../../schemas/errors.ts';
import { pause } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import { settleEarlier, writeMarks } from './processes.ts';

export type ServiceLog = Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>;

interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** One embedded server process. Children of a killed parent end by themselves (see guard.ts). */
export interface EmbeddedService {
  readonly name: string;
  /** What a client is given. */
  readonly url: string;
  /** Of the server itself, not of its guard. */
  readonly pid: number;
  /** Ends it and resolves when it has; never rejects. A second call waits for the first. */
  stop(): Promise<void>;
  /** Resolves when it has ended, whoever ended it. */
  readonly exited: Promise<Exit>;
}

export interface GuardedProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd?: string | undefined;
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly stopSignal: NodeJS.Signals;
  /** Between the stop signal and SIGKILL. */
  readonly graceMs: number;
}

export interface ServiceSpec {
  readonly name: string;
  readonly url: string;
  readonly program: GuardedProgram;
  /** `guard`: run under guard.ts. `stdin`: a program of ours that ends by itself when its stdin does. */
  readonly watch: 'guard' | 'stdin';
  readonly env?: NodeJS.ProcessEnv;
  /** Where its pids are kept, so that a later start waits for it to be gone. */
  readonly pidFile: string;
  /** Resolves when it answers; rejects or hangs (until the signal) while it does not yet. */
  readonly probe: (signal: AbortSignal) => Promise<void>;
  readonly readyMs: number;
  readonly log: ServiceLog;
}

const keptLines = 20;

/** Starts a server and waits until it answers; on failure nothing is left running. */
export async function startService(spec: ServiceSpec): Promise<EmbeddedService> {
  const { name, program, log } = spec;
  mkdirSync(dirname(spec.pidFile), { recursive: true });
  await settleEarlier(spec.pidFile, program.graceMs + 2000);

  const began = performance.now();
  const child = spawnProgram(spec);
  const lines: string[] = [];
  let serverPid = child.pid ?? 0;
  const onLine = (line: string): void => {
    const announced = spec.watch === 'guard' ? /^guard: (\d+)$/.exec(line) : null;
    if (announced !== null) {
      serverPid = Number(announced[1]);
      writeMarks(spec.pidFile, child.pid === undefined ? [serverPid] : [child.pid, serverPid]);
      return;
    }
    lines.push(line);
    if (lines.length > keptLines) lines.shift();
    log.debug({ service: name, line }, 'embedded service wrote a line');
  };
  for (const stream of [child.stdout, child.stderr]) {
    if (stream !== null) createInterface({ input: stream }).on('line', onLine);
  }
  if (child.pid !== undefined) writeMarks(spec.pidFile, [child.pid]);

  let ended: Exit | null = null;
  const exited = new Promise<Exit>((resolve) => {
    const finish = (exit: Exit): void => {
      ended = exit;
      resolve(exit);
    };
    child.on('error', (error) => {
      lines.push(error.message);
      finish({ code: 127, signal: null });
    });
    child.on('exit', (code, signal) => finish({ code, signal }));
  });

  let stopping: Promise<void> | null = null;
  const stop = (): Promise<void> => (stopping ??= stopProgram(spec, child, exited));

  try {
    await untilAnswers(spec, exited);
  } catch (cause) {
    await stop();
    const wrote = lines.length === 0 ? 'It wrote nothing.' : `Its last lines:\n  ${lines.join('\n  ')}`;
    const how = describeEnd(ended);
    throw new AppError(
      'STORE_UNAVAILABLE',
      `Embedded ${name} did not start within ${spec.readyMs / 1000} s${how}. ${wrote}`,
      { cause },
    );
  }
  log.debug({ service: name, ms: Math.round(performance.now() - began) }, 'embedded service answers');
  return { name, url: spec.url, pid: serverPid, stop, exited };
}

function spawnProgram({ program, watch, env }: ServiceSpec): ChildProcess {
  const guard = fileURLToPath(new URL('guard.ts', import.meta.url));
  const guarded = watch === 'guard';
  return spawn(
    guarded ? process.execPath : program.command,
    guarded ? [guard, JSON.stringify(program)] : [...program.args],
    {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
      // A group of its own: Ctrl-C in a terminal goes to the supervisor, which stops the roles before the services.
      detached: true,
      ...(guarded || program.cwd === undefined ? {} : { cwd: program.cwd }),
    },
  );
}

async function untilAnswers(spec: ServiceSpec, exited: Promise<Exit>): Promise<void> {
  const deadline = AbortSignal.timeout(spec.readyMs);
  let last: unknown = null;
  let gone = false;
  const end = exited.then(() => {
    gone = true;
  });
  while (!deadline.aborted && !gone) {
    const attempt = AbortSignal.any([deadline, AbortSignal.timeout(2000)]);
    const timedOut = new Promise<never>((_resolve, reject) => {
      attempt.addEventListener('abort', () => reject(new Error('it does not answer')), { once: true });
    });
    try {
      const answer = await Promise.race([spec.probe(attempt).then(() => 'ready'), timedOut, end]);
      if (answer === 'ready') return;
    } catch (error) {
      last = error;
      await Promise.race([pause(40), end]);
    }
  }
  throw last ?? new Error('it ended');
}

async function stopProgram(spec: ServiceSpec, child: ChildProcess, exited: Promise<Exit>): Promise<void> {
  child.kill(spec.watch === 'guard' ? 'SIGTERM' : spec.program.stopSignal);
  // The guard's own patience comes first; this is for a guard, or a program of ours, that hangs.
  const patience = pause(spec.program.graceMs + (spec.watch === 'guard' ? 1000 : 0)).then(() => 'late');
  if ((await Promise.race([exited, patience])) === 'late') {
    child.kill('SIGKILL');
    await settleEarlier(spec.pidFile, 500);
    return;
  }
  rmSync(spec.pidFile, { force: true });
}

function describeEnd(exit: Exit | null): string {
  if (exit === null) return '';
  return exit.signal === null ? ` (it ended with code ${exit.code})` : ` (it was ended by ${exit.signal})`;
}
