import { readFileSync, readdirSync } from 'node:fs';

/** Process information from Linux's /proc. */

/** Clock ticks per second in /proc/<pid>/stat: 100 on every Linux that Node supports. */
const TICKS_PER_SECOND = 100;

interface Stat {
  readonly pid: number;
  readonly parent: number;
  readonly state: string;
  readonly cpuSeconds: number;
  /** CPU time of exited children. */
  readonly endedSeconds: number;
}

function statOf(pid: number): Stat | null {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The command name may contain anything, so fields are counted from its closing bracket.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    const seconds = (from: number): number =>
      (Number(fields[from]) + Number(fields[from + 1])) / TICKS_PER_SECOND;
    return {
      pid,
      parent: Number(fields[1]),
      state: fields[0] ?? '',
      cpuSeconds: seconds(11),
      endedSeconds: seconds(13),
    };
  } catch {
    return null;
  }
}

function allProcesses(): Stat[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => statOf(Number(name)) ?? []);
}

/** Running children of a process, without zombies. */
export function childrenOf(pid: number): number[] {
  return allProcesses()
    .filter(({ parent, state }) => parent === pid && state !== 'Z')
    .map((child) => child.pid);
}

export function isAlive(pid: number): boolean {
  const state = statOf(pid)?.state;
  return state !== undefined && state !== 'Z';
}

/** Running processes with a text (a folder) in their arguments. */
export function processesNaming(text: string): number[] {
  return allProcesses()
    .filter(({ pid, state }) => state !== 'Z' && pid !== process.pid && commandLine(pid).includes(text))
    .map(({ pid }) => pid);
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

/** CPU seconds of a process and its descendants, running or exited, since their start. */
export function cpuOfTree(root: number, all: readonly Stat[] = allProcesses()): number {
  const stat = all.find(({ pid }) => pid === root);
  const own = stat === undefined ? 0 : stat.cpuSeconds + stat.endedSeconds;
  return all.filter(({ parent }) => parent === root).reduce((sum, { pid }) => sum + cpuOfTree(pid, all), own);
}

/** CPU seconds of the children of this process that have exited. */
export function cpuOfEndedChildren(): number {
  return statOf(process.pid)?.endedSeconds ?? Number.NaN;
}

/** Peak resident memory of a process since its start, in MiB. */
export function memoryOf(pid: number, which: 'VmHWM' | 'VmRSS'): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    const kib = new RegExp(`^${which}:\\s+(\\d+) kB`, 'm').exec(status)?.[1];
    return Number(kib ?? Number.NaN) / 1024;
  } catch {
    return Number.NaN;
  }
}

export interface ProcessUse {
  readonly name: string;
  readonly pid: number;
  readonly cpuSeconds: number;
  readonly peakMiB: number;
}

/**
 * CPU of named processes from now until `end`; for those in `fromStart` since their start. PostgreSQL is many processes, every
 * other name one. Peak memory is always since the process's start.
 */
export function watchProcesses(
  pids: Readonly<Record<string, number>>,
  fromStart: readonly string[] = [],
): { end(): ProcessUse[] } {
  const cpu = (): Map<string, number> => {
    const all = allProcesses();
    const of = (name: string, root: number): number =>
      name === 'postgres' ? cpuOfTree(root, all) : (all.find(({ pid }) => pid === root)?.cpuSeconds ?? 0);
    return new Map(Object.entries(pids).map(([name, pid]) => [name, of(name, pid)]));
  };
  const before = cpu();
  return {
    end() {
      const after = cpu();
      return Object.entries(pids).map(([name, pid]) => ({
        name,
        pid,
        cpuSeconds: (after.get(name) ?? 0) - (fromStart.includes(name) ? 0 : (before.get(name) ?? 0)),
        peakMiB: memoryOf(pid, 'VmHWM'),
      }));
    },
  };
}
