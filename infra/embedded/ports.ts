import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';

/** A loopback port for each name, the one that was used in this folder before where it is still free. */
export async function takePorts<Name extends string>(
  dataDir: string,
  names: readonly Name[],
): Promise<Record<Name, number>> {
  const file = join(dataDir, 'ports.json');
  const known = readPorts(file);
  const taken = new Set<number>();
  const entries: [Name, number][] = [];
  for (const name of names) {
    let port = known[name] ?? (await freePort());
    while (taken.has(port) || !(await isFree(port))) port = await freePort();
    taken.add(port);
    entries.push([name, port]);
  }
  const ports = Object.fromEntries(entries) as Record<Name, number>;
  // A role that is started again has its port: a full disk is no hindrance then.
  const isNew = entries.some(([name, port]) => known[name] !== port);
  if (isNew) writeFileSync(file, `${JSON.stringify({ ...known, ...ports }, null, 2)}\n`);
  return ports;
}

/** All that were taken for a folder. */
export function portsOf(dataDir: string): number[] {
  return Object.values(readPorts(join(dataDir, 'ports.json')));
}

function readPorts(file: string): Record<string, number> {
  try {
    const parsed: unknown = JSON.parse(readFileSync(file, 'utf8'));
    const pairs = typeof parsed === 'object' && parsed !== null ? Object.entries(parsed) : [];
    return Object.fromEntries(
      pairs.filter(([, port]) => Number.isInteger(port) && port > 1023 && port < 65_536),
    );
  } catch {
    // None yet, or a file that a kill cut short: new ports do as well.
    return {};
  }
}

/**
 * A port that is free now. It lies below 32768: above, the system hands ports to outgoing connections, and one of those
 * could take it before the server that it is for.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => resolve(true)));
  });
}
