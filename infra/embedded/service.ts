import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { AppError } from '../../schemas/errors.ts';
import { sleep, withTimeout } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import { awaitEarlierExit, writeMarks } from './processes.ts';

export type ServiceLog = Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>;

interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** One embedded server process. It exits when its parent is killed (see guard.ts). */
export interface EmbeddedService {
  readonly name: string;
  /** URL for clients. */
  readonly url: string;
  /** Process id of the server, not of its guard. */
  readonly pid: number;
  /** Stops it and resolves when it has exited; never rejects. A second call waits for the first. */
  stop(): Promise<void>;
  /** Resolves when it has exited for any reason. */
  readonly exited: Promise<Exit>;
}

export interface GuardedProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly uid?: number | undefined;
  readonly gid?: number | undefined;
  readonly stopSignal: NodeJS.Signals;
  /** Time between the stop signal and SIGKILL. */
  readonly graceMs: number;
}

export interface ServiceSpec {
  readonly name: string;
  readonly url: string;
  readonly program: GuardedProgram;
  /** `guard`: run under guard.ts. `stdin`: the program exits when its standard input ends. */
  readonly watch: 'guard' | 'stdin';
  readonly env?: NodeJS.ProcessEnv;
  /** Stores the process ids, so that a later start can wait until they have exited. */
  readonly pidFile: string;
  /** Resolves when the server is ready; until then it rejects, or hangs until the signal. */
  readonly probe: (signal: AbortSignal) => Promise<void>;
  readonly readyMs: number;
  readonly log: ServiceLog;
}

const MAX_OUTPUT_LINES = 20;

/** Starts a server and waits until it is ready; after a failure nothing is left running. */
export async function startService(spec: ServiceSpec): Promise<EmbeddedService> {
  const { name, program, log } = spec;
  mkdirSync(dirname(spec.pidFile), { recursive: true });
  await awaitEarlierExit(spec.pidFile, program.graceMs + 2000);

  const began = performance.now();
  const child = spawnProgram(spec);
  const output = collectOutput(spec, child);
  recordPids(spec, [child.pid]);
  let exit: Exit | null = null;
  const exited = new Promise<Exit>((resolve) => {
    child.on('error', (error) => {
      output.lines.push(error.message);
      resolve({ code: 127, signal: null });
    });
    child.on('exit', (code, signal) => resolve({ code, signal }));
  });
  void exited.then((how) => (exit = how));

  let stopping: Promise<void> | null = null;
  const stop = (): Promise<void> => (stopping ??= stopProgram(spec, child, exited));
  try {
    await untilReady(spec, exited);
  } catch (cause) {
    const failure = describeFailure(exit, spec.readyMs);
    await stop();
    const { lines } = output;
    const printed = lines.length === 0 ? 'It printed nothing.' : `Its last output:\n  ${lines.join('\n  ')}`;
    throw new AppError('STORE_UNAVAILABLE', `Embedded ${name} did not start${failure}. ${printed}`, {
      cause,
    });
  }
  log.debug({ service: name, ms: Math.round(performance.now() - began) }, 'embedded service ready');
  return { name, url: spec.url, pid: output.serverPid ?? child.pid ?? 0, stop, exited };
}

/** A failure is only logged: on a full disk the server runs, and is stopped, as before. */
function recordPids({ name, pidFile, log }: ServiceSpec, pids: readonly (number | undefined)[]): void {
  try {
    writeMarks(
      pidFile,
      pids.filter((pid) => pid !== undefined),
    );
  } catch (error) {
    log.warn({ err: error, service: name }, 'could not write process ids');
  }
}

interface Output {
  /** The last lines. */
  readonly lines: string[];
  /** Announced by the guard. */
  serverPid: number | null;
}

function collectOutput(spec: ServiceSpec, child: ChildProcess): Output {
  const { name, watch, log } = spec;
  const output: Output = { lines: [], serverPid: null };
  const onLine = (line: string): void => {
    const announced = watch === 'guard' ? /^guard: (\d+)$/.exec(line) : null;
    if (announced !== null) {
      output.serverPid = Number(announced[1]);
      recordPids(spec, [child.pid, output.serverPid]);
      return;
    }
    output.lines.push(line);
    if (output.lines.length > MAX_OUTPUT_LINES) output.lines.shift();
    log.debug({ service: name, line }, 'embedded service output');
  };
  for (const stream of [child.stdout, child.stderr]) {
    if (stream !== null) createInterface({ input: stream }).on('line', onLine);
  }
  return output;
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
      // A process group of its own: Ctrl-C in a terminal reaches only the supervisor, which stops the roles first.
      detached: true,
    },
  );
}

async function untilReady(spec: ServiceSpec, exited: Promise<Exit>): Promise<void> {
  const deadline = AbortSignal.timeout(spec.readyMs);
  let last: unknown = null;
  let hasExited = false;
  const end = exited.then(() => {
    hasExited = true;
  });
  while (!deadline.aborted && !hasExited) {
    const attempt = AbortSignal.any([deadline, AbortSignal.timeout(2000)]);
    const timedOut = new Promise<never>((_resolve, reject) => {
      attempt.addEventListener('abort', () => reject(new Error('no answer within 2 s')), { once: true });
    });
    try {
      const answer = await Promise.race([spec.probe(attempt).then(() => 'ready'), timedOut, end]);
      if (answer === 'ready') return;
    } catch (error) {
      last = error;
      await Promise.race([sleep(40), end]);
    }
  }
  throw last ?? new Error('the process exited');
}

async function stopProgram(spec: ServiceSpec, child: ChildProcess, exited: Promise<Exit>): Promise<void> {
  child.kill(spec.watch === 'guard' ? 'SIGTERM' : spec.program.stopSignal);
  // The guard sends SIGKILL itself; this is for a guard or program that hangs.
  const ms = spec.program.graceMs + (spec.watch === 'guard' ? 1000 : 0);
  if ((await withTimeout(exited, ms, null)) === null) {
    child.kill('SIGKILL');
    await awaitEarlierExit(spec.pidFile, 500);
    return;
  }
  rmSync(spec.pidFile, { force: true });
}

function describeFailure(exit: Exit | null, readyMs: number): string {
  if (exit === null) return ` within ${readyMs / 1000} s`;
  return exit.signal === null ? `: it exited with code ${exit.code}` : `: it exited on ${exit.signal}`;
}
