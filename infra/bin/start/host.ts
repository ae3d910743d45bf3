import { once } from 'node:events';
import { accessSync, constants, mkdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { resolve } from 'node:path';

import { AppError } from '../../../schemas/errors.ts';
import type { Config } from '../../config.ts';

/** Checks that the data folder is writable and the port is free, before anything is started. */
export async function checkHost(config: Config): Promise<{ dataDir: string; host: string; port: number }> {
  const dataDir = resolve(config.dataDir);
  try {
    mkdirSync(dataDir, { recursive: true });
    accessSync(dataDir, constants.W_OK);
  } catch (cause) {
    throw new AppError('CONFIG_INVALID', `DATA_DIR: ${dataDir} cannot be written to (${codeOf(cause)})`, {
      cause,
    });
  }
  const probe = createServer();
  try {
    probe.listen(config.port, config.host);
    await once(probe, 'listening');
  } catch (cause) {
    throw new AppError(
      'CONFIG_INVALID',
      `The API cannot listen on ${config.host}, port ${config.port} (${codeOf(cause)}): set PORT or HOST to others`,
      { cause },
    );
  }
  const address = probe.address();
  await new Promise((done) => probe.close(done));
  return {
    dataDir,
    host: config.host,
    port: typeof address === 'object' && address !== null ? address.port : config.port,
  };
}

/** The host to print in a URL: loopback if the API listens on every address. */
export function urlHost(host: string): string {
  if (host === '0.0.0.0') return '127.0.0.1';
  if (host === '::') return '[::1]';
  return host.includes(':') ? `[${host}]` : host;
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error);
}
