import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';

/** Calls run one after the other: each reads the file that the previous one has written. */
let previous: Promise<unknown> = Promise.resolve();

/**
 * A free loopback port for each name, which no other name of this folder has; the previous one of this folder if it is
 * still free.
 */
export async function takePorts<Name extends string>(
  dataDir: string,
  names: readonly Name[],
): Promise<Record<Name, number>> {
  const taking = previous.then(() => assignPorts(dataDir, names));
  previous = taking.catch(() => {});
  return await taking;
}

async function assignPorts<Name extends string>(
  dataDir: string,
  names: readonly Name[],
): Promise<Record<Name, number>> {
  const file = join(dataDir, 'ports.json');
  const known = readPorts(file);
  const isOurs = (name: string): boolean => names.some((own) => own === name);
  const taken = new Set(Object.entries(known).flatMap(([name, port]) => (isOurs(name) ? [] : [port])));
  const entries: [Name, number][] = [];
  for (const name of names) {
    let port = known[name] ?? (await freePort());
    while (taken.has(port) || !(await isFree(port))) port = await freePort();
    taken.add(port);
    entries.push([name, port]);
  }
  const ports = Object.fromEntries(entries) as Record<Name, number>;
  // Written only on a change, so that a restart works on a full disk.
  const isNew = entries.some(([name, port]) => known[name] !== port);
  if (isNew) writeFileSync(file, `${JSON.stringify({ ...known, ...ports }, null, 2)}\n`);
  return ports;
}

/** All ports assigned in a folder. */
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
    // Missing, or incomplete after a kill: new ports are assigned.
    return {};
  }
}

/**
 * A free port below 32768: the system assigns higher ports to outgoing connections, which could take it before the server
 * listens.
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
