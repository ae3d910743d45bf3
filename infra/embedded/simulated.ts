import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { makeClosedFolder } from './data-dir.ts';
import { freePort } from './ports.ts';
import { startService } from './service.ts';
import type { EmbeddedService, ServiceLog } from './service.ts';

export interface SimulatedOptions {
  /** Folder of this service alone. */
  readonly dataDir: string;
  /** Default: any free port. */
  readonly port?: number | undefined;
  readonly log: ServiceLog;
  readonly args?: readonly string[] | undefined;
}

/** Starts a simulated service on loopback, in a process of its own. */
export async function startSimulated(
  { dataDir, log, args = [], ...options }: SimulatedOptions,
  program: {
    readonly name: string;
    /** URL of its `server.ts`. */
    readonly server: URL;
    readonly graceMs: number;
    /** Throws until the service is ready. */
    readonly probe: (url: string, signal: AbortSignal) => Promise<void>;
  },
): Promise<EmbeddedService> {
  makeClosedFolder(dataDir);
  const port = options.port ?? (await freePort());
  const url = `http://127.0.0.1:${port}`;
  return await startService({
    name: program.name,
    url,
    program: {
      command: process.execPath,
      args: [fileURLToPath(program.server), '--port', String(port), '--watch-stdin', ...args],
      stopSignal: 'SIGTERM',
      graceMs: program.graceMs,
    },
    watch: 'stdin',
    pidFile: join(dataDir, `${program.name}.pids`),
    probe: (signal) => program.probe(url, signal),
    readyMs: 60_000,
    log,
  });
}
