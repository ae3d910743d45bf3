/**
 * Runs one program (`node guard.ts '<json>'`) and outlives neither it nor its own parent.
 *
 * The parent holds the other end of this process's stdin. When that pipe closes, because the parent stopped or was
 * killed with -9, the program is ended too: first by its stop signal, then by SIGKILL. So no service is ever left
 * behind on a folder or a port. Written for programs that cannot watch their parent themselves (java, postgres, redis).
 */
import { spawn } from 'node:child_process';

import type { GuardedProgram } from './service.ts';

// Border: the argument is written by service.ts alone.
const program = JSON.parse(process.argv[2] ?? '{}') as GuardedProgram;
const child = spawn(program.command, [...program.args], {
  stdio: ['ignore', 'inherit', 'inherit'],
  ...(program.cwd === undefined ? {} : { cwd: program.cwd }),
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
// A reader that has gone away must not take the guard with it before the program has ended.
process.stdout.on('error', () => {});
process.stderr.on('error', () => {});
process.stdin.on('end', end).on('error', end).resume();
