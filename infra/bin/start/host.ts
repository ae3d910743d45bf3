import { accessSync, constants, mkdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { resolve } from 'node:path';

import { AppError } from '../../../schemas/errors.ts';
import type { Config } from '../../config.ts';
import { dataDirInUse, lockHolder } from '../../embedded/data-dir.ts';
import { errorCode } from '../../error-code.ts';
import { listenTcp } from '../../listen-tcp.ts';

/** Checks that the data folder is writable and the port is free, before anything is started. */
export async function checkHost(config: Config): Promise<{ dataDir: string; host: string; port: number }> {
  const dataDir = resolve(config.dataDir);
  try {
    mkdirSync(dataDir, { recursive: true });
    accessSync(dataDir, constants.W_OK);
  } catch (cause) {
    throw new AppError(
      'CONFIG_INVALID',
      `DATA_DIR: ${dataDir} cannot be written to (${errorCode(cause) ?? String(cause)})`,
      {
        cause,
      },
    );
  }
  const probe = createServer();
  const { host } = config;
  try {
    const { port } = await listenTcp(probe, {
      host,
      port: config.port,
      name: 'The API',
      settings: 'PORT or HOST',
    });
    await new Promise((done) => probe.close(done));
    return { dataDir, host, port };
  } catch (error) {
    // A service that runs in this folder is why the port is taken.
    const holder = lockHolder(dataDir);
    throw holder === null ? error : dataDirInUse(dataDir, holder);
  }
}

/** The host to print in a URL: loopback if the API listens on every address. */
export function urlHost(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}
