/**
 * Runs one program (`node guard.ts '<json>'`) and stops it when the parent process exits, for programs that cannot watch
 * their parent (java, postgres, redis).
 *
 * The parent holds the other end of this process's standard input. When that pipe closes, also after `kill -9`, the
 * program gets its stop signal and then SIGKILL, so that no service keeps a folder or a port in use.
 */
import { spawn } from 'node:child_process';

import type { GuardedProgram } from './service.ts';

// Only service.ts writes this argument.
const program = JSON.parse(process.argv[2] ?? '{}') as GuardedProgram;
const child = spawn(program.command, [...program.args], {
  stdio: ['ignore', 'inherit', 'inherit'],
  ...(program.uid === undefined ? {} : { uid: program.uid }),
  ...(program.gid === undefined ? {} : { gid: program.gid }),
});

let ending = false;
function end(): void {
  if (ending) return;
  ending = true;
  child.kill(program.stopSignal);
  setTimeout(() => child.kill('SIGKILL'), program.graceMs).unref();
}

child.on('error', (error) => {
  process.stderr.write(`${error.message}\n`);
  process.exit(127);
});
child.on('exit', (code, signal) => {
  if (signal !== null) process.stderr.write(`${program.command} ended by ${signal}\n`);
  process.exit(code ?? 1);
});
if (child.pid !== undefined) process.stdout.write(`guard: ${child.pid}\n`);

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, end);
// Ignore EPIPE: a closed reader must not end the guard before the program.
process.stdout.on('error', () => {});
process.stderr.on('error', () => {});
process.stdin.on('end', end).on('error', end).resume();
