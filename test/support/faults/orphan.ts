import { spawn } from 'node:child_process';

import { onTestFinished } from 'vitest';
import { z } from 'zod';

const Announcement = z.object({ pid: z.number(), url: z.string() });

export interface Child {
  readonly pid: number;
  readonly url: string;
  /** Kills the parent, which has no pipe to the child and sends it nothing. */
  orphan(): void;
}

/**
 * Runs a simulated service (`node ARGS`) as the child of another process, and returns when it listens. The child is
 * killed when the test ends, whatever became of it: a process that outlives its test keeps the test runner from ending.
 */
export async function startChild(args: readonly string[]): Promise<Child> {
  const script = `
    const args = ${JSON.stringify(args)};
    require('node:child_process').spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'ignore'] });
    setInterval(() => {}, 1000);`;
  const parent = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'ignore'] });
  onTestFinished(() => void parent.kill('SIGKILL'));
  const line = await new Promise<string>((resolve, reject) => {
    parent.stdout.once('data', (data: Buffer) => resolve(data.toString()));
    parent.once('exit', () => reject(new Error('the parent exited before its child listened')));
  });
  const { pid, url } = Announcement.parse(JSON.parse(line));
  onTestFinished(() => {
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It exited, as it should.
    }
  });
  return { pid, url, orphan: () => void parent.kill('SIGKILL') };
}
