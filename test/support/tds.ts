import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs `tds` as a process with these settings; it does not find an embedded start. */
export async function tds(
  env: Readonly<Record<string, string>>,
  ...args: readonly string[]
): Promise<CommandResult> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tds-command-'));
  try {
    return await new Promise((resolve) => {
      execFile(
        process.execPath,
        ['infra/bin/tds.ts', ...args],
        {
          env: {
            PATH: process.env['PATH'] ?? '',
            NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] ?? '',
            DATA_DIR: dataDir,
            ...env,
          },
          maxBuffer: 64_000_000,
        },
        (error, stdout, stderr) => {
          const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
          resolve({ code, stdout, stderr });
        },
      );
    });
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
}
