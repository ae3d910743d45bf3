import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';

import { pause } from '../lifecycle.ts';

/** A process and when it began: a pid alone is given away again. */
export interface ProcessMark {
  readonly pid: number;
  /** In the system's own words; null where it cannot be told. */
  readonly began: string | null;
}

/** Null when no such process runs (a zombie does not). */
export function markOf(pid: number): ProcessMark | null {
  try {
    process.kill(pid, 0);
  } catch (error) {
    // EPERM: it runs, as another user.
    if (!(error instanceof Error && 'code' in error && error.code === 'EPERM')) return null;
  }
  if (process.platform !== 'linux') {
    const began = spawnSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8' }).stdout?.trim();
    return { pid, began: began === undefined || began === '' ? null : began };
  }
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name, in parentheses, may hold blanks; fields are counted behind it: state is the 3rd, start time the 22nd.
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

/** Marks in a file, oldest first; an unreadable file holds none. */
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
 * Waits until the processes that a pid file names have ended, and ends them when they do not: an earlier start that
 * was killed may still be going down, and two servers on one folder would spoil it.
 */
export async function settleEarlier(file: string, waitMs: number): Promise<void> {
  const left = (): ProcessMark[] => readMarks(file).filter((mark) => runs(mark));
  // Signal 0 only looks.
  for (const signal of [0, 'SIGTERM', 'SIGKILL'] as const) {
    for (const mark of left()) {
      try {
        process.kill(mark.pid, signal);
      } catch {
        // It ended between the look and the signal.
      }
    }
    const deadline = Date.now() + waitMs;
    while (left().length > 0 && Date.now() < deadline) await pause(50);
  }
  rmSync(file, { force: true });
}
