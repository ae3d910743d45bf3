import { isIP } from 'node:net';
import type { LookupFunction } from 'node:net';

import { Pool, buildConnector, errors } from 'undici';

import { EgressError, codeOf } from './errors.ts';

/** A URL with the addresses that were found good for this attempt. */
export interface Target {
  readonly url: URL;
  readonly addresses: readonly string[];
}

export interface Pools {
  /** The connections to a target: those that were made to the same addresses, or new ones to these. */
  of(target: Target): Pool;
  /** Ends all connections; what runs fails. */
  close(): Promise<void>;
}

const CONNECT_MS = 10_000;
const MAX_HEADER_BYTES = 16_384;
/** An idle connection is kept so long, or what the server says, up to the second. */
const IDLE_MS = 4000;
const MAX_IDLE_MS = 10_000;
/** Past so many targets the connections of those that were idle longest are closed before their time. */
const MAX_KEPT = 256;

/** @param connections to one target at a time; calls past them wait, on their own time */
export function createPools(connections: number): Pools {
  // In the order of their last use.
  const pools = new Map<string, Pool>();

  const open = ({ url, addresses }: Target): Pool =>
    new Pool(url.origin, {
      connections,
      connect: connectTo(addresses),
      allowH2: false,
      maxHeaderSize: MAX_HEADER_BYTES,
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: MAX_IDLE_MS,
      // The time for the whole answer is the caller's.
      headersTimeout: 0,
      bodyTimeout: 0,
    });

  const makeRoom = (): void => {
    for (const [key, pool] of pools) {
      if (pools.size < MAX_KEPT) return;
      if (pool.stats.size > 0) continue;
      pools.delete(key);
      void pool.destroy();
    }
  };

  return {
    of(target) {
      const key = [target.url.origin, ...target.addresses.toSorted()].join(' ');
      let pool = pools.get(key);
      if (pool === undefined) {
        makeRoom();
        pool = open(target);
      }
      pools.delete(key);
      pools.set(key, pool);
      return pool;
    },
    async close() {
      const all = [...pools.values()];
      pools.clear();
      await Promise.all(all.map((pool) => pool.destroy()));
    },
  };
}

/** Connects to one of these addresses, whatever the host resolves to by now; TLS asks for the host by its name. */
function connectTo(addresses: readonly string[]): buildConnector.connector {
  const found = addresses.map((address) => ({ address, family: isIP(address) }));
  const pinned: LookupFunction = (_host, _options, callback) => callback(null, found);
  const dial = buildConnector({ timeout: CONNECT_MS, autoSelectFamily: true, lookup: pinned });
  const secure = buildConnector({ timeout: CONNECT_MS, allowH2: false });
  return (options, callback) => {
    const isSecure = options.protocol === 'https:';
    const port = options.port || (isSecure ? '443' : '80');
    dial({ ...options, protocol: 'http:', port }, (...[error, socket]) => {
      if (error !== null) callback(notConnected(error, 'connection'), null);
      else if (!isSecure) callback(null, socket);
      else {
        secure({ ...options, port, httpSocket: socket }, (...[untrusted, secured]) => {
          if (untrusted === null) callback(null, secured);
          else callback(notConnected(untrusted, 'tls'), null);
        });
      }
    });
  };
}

function notConnected(cause: Error, stage: 'connection' | 'tls'): EgressError {
  if (cause instanceof errors.ConnectTimeoutError) {
    return new EgressError('timeout', `no connection within ${CONNECT_MS / 1000} s`, { cause });
  }
  const what = stage === 'tls' ? 'TLS failed' : 'no connection';
  return new EgressError(stage, `${what}${codeOf(cause)}`, { cause });
}
