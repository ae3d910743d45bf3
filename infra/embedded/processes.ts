import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';

import { errorCode } from '../error-code.ts';
import { sleep } from '../lifecycle.ts';

/** A process id with its start time, because process ids are reused. */
export interface ProcessMark {
  readonly pid: number;
  /** As the system formats it; null if unknown. */
  readonly began: string | null;
}

/** Null if no such process is running (a zombie is not). */
export function markOf(pid: number): ProcessMark | null {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: it is running as another user.
    if (errorCode(error) !== 'EPERM') return null;
  }
  if (process.platform !== 'linux') {
    const began = spawnSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8' }).stdout?.trim();
    return { pid, began: began === undefined || began === '' ? null : began };
  }
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name, in parentheses, may contain blanks. After it come the fields: state is the 3rd of all, start time the 22nd.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' ? null : { pid, began: fields[19] ?? null };
  } catch {
    return null;
  }
}

export function runs(mark: ProcessMark): boolean {
  const now = markOf(mark.pid);
  return now !== null && (now.began === null || mark.began === null || now.began === mark.began);
}

/** The processes listed in a file, oldest first; none if the file cannot be read. */
export function readMarks(file: string): ProcessMark[] {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch {
    return [];
  }
  return text.split('\n').flatMap((line) => {
    const [pid, began] = line.split(' ');
    const number = Number(pid);
    if (!Number.isSafeInteger(number) || number <= 1) return [];
    return [{ pid: number, began: began === undefined || began === '' || began === '-' ? null : began }];
  });
}

export function writeMarks(file: string, pids: readonly number[]): void {
  const lines = pids.flatMap((pid) => {
    const mark = markOf(pid);
    return mark === null ? [] : [`${mark.pid} ${mark.began ?? '-'}\n`];
  });
  writeFileSync(file, lines.join(''));
}

/**
 * Waits until the processes in a pid file have exited, and kills them after `waitMs`. A killed earlier start may still be
 * shutting down, and two servers would corrupt the folder.
 */
export async function awaitEarlierExit(file: string, waitMs: number): Promise<void> {
  await awaitExit(
    () =>
      readMarks(file)
        .filter((mark) => runs(mark))
        .map(({ pid }) => pid),
    waitMs,
  );
  rmSync(file, { force: true });
}

/** Waits until no process is left in `running`; sends SIGTERM after `waitMs`, SIGKILL after twice that. */
export async function awaitExit(running: () => readonly number[], waitMs: number): Promise<void> {
  for (const signal of [null, 'SIGTERM', 'SIGKILL'] as const) {
    if (signal !== null) {
      for (const pid of running()) {
        try {
          process.kill(pid, signal);
        } catch {
          // It exited meanwhile.
        }
      }
    }
    const deadline = Date.now() + waitMs;
    while (running().length > 0 && Date.now() < deadline) await sleep(50);
  }
}
