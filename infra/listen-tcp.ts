import type { Server } from 'node:net';

import { AppError } from '../schemas/errors.ts';
import { errorCode } from './error-code.ts';

export interface ListenOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** What listens, as an error names it. */
  readonly name: string;
  /** The settings that change the address. */
  readonly settings: string;
}

/**
 * Listens on an address; returns the port in use and the base URL.
 *
 * @throws `CONFIG_INVALID` when the address cannot be used, such as a port that is taken
 */
export async function listenTcp(
  server: Server,
  { host, port, name, settings }: ListenOptions,
): Promise<{ port: number; url: string }> {
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, resolve);
    });
  } catch (cause) {
    throw new AppError(
      'CONFIG_INVALID',
      `${name} cannot listen on ${host}, port ${port} (${errorCode(cause) ?? String(cause)}): change ${settings}`,
      { cause },
    );
  }
  const address = server.address();
  if (address === null || typeof address === 'string') throw new AppError('INVALID', 'no TCP address');
  const shown = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return { port: address.port, url: `http://${shown}:${address.port}` };
}
