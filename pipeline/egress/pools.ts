import { isIP } from 'node:net';
import type { LookupFunction } from 'node:net';

import { Pool, buildConnector, errors } from 'undici';

import { EgressError, codeOf } from './errors.ts';

/** A URL with the checked addresses of its host. */
export interface Target {
  readonly url: URL;
  readonly addresses: readonly string[];
}

const CONNECT_MS = 10_000;
const MAX_HEADER_BYTES = 16_384;
/** Lifetime of an idle connection: the first, or what the server asks for, up to the second. */
const IDLE_MS = 4000;
const MAX_IDLE_MS = 10_000;
/** Beyond this number, pools that are idle for longest are closed early. */
const MAX_POOLS = 256;

/** @param connections upper bound per target; further calls wait, within their timeouts. null: none */
export function createPools(connections: number | null) {
  // In order of last use.
  const pools = new Map<string, Pool>();

  const create = ({ url, addresses }: Target): Pool =>
    new Pool(url.origin, {
      connections,
      connect: connectTo(addresses),
      allowH2: false,
      maxHeaderSize: MAX_HEADER_BYTES,
      keepAliveTimeout: IDLE_MS,
      keepAliveMaxTimeout: MAX_IDLE_MS,
      // The caller's timeout covers the whole exchange.
      headersTimeout: 0,
      bodyTimeout: 0,
    });

  const evictIdle = (): void => {
    for (const [key, pool] of pools) {
      if (pools.size < MAX_POOLS) return;
      if (pool.stats.size > 0) continue;
      pools.delete(key);
      void pool.destroy();
    }
  };

  return {
    /** Returns the connection pool of the target's origin and addresses. */
    of(target: Target): Pool {
      const key = [target.url.origin, ...target.addresses.toSorted()].join(' ');
      let pool = pools.get(key);
      if (pool === undefined) {
        evictIdle();
        pool = create(target);
      }
      pools.delete(key);
      pools.set(key, pool);
      return pool;
    },
    /** Closes all connections; running calls fail. */
    async close(): Promise<void> {
      const all = [...pools.values()];
      pools.clear();
      await Promise.all(all.map((pool) => pool.destroy()));
    },
  };
}

/** Connects to one of these addresses, whatever the host resolves to by now; TLS verifies the host name. */
function connectTo(addresses: readonly string[]): buildConnector.connector {
  const found = addresses.map((address) => ({ address, family: isIP(address) }));
  const pinned: LookupFunction = (_host, _options, callback) => callback(null, found);
  const dial = buildConnector({ timeout: CONNECT_MS, autoSelectFamily: true, lookup: pinned });
  const secure = buildConnector({ timeout: CONNECT_MS, allowH2: false });
  return (options, callback) => {
    const isSecure = options.protocol === 'https:';
    const port = options.port || (isSecure ? '443' : '80');
    dial({ ...options, protocol: 'http:', port }, (...[error, socket]) => {
      if (error !== null) callback(connectError(error, 'connection'), null);
      else if (!isSecure) callback(null, socket);
      else {
        secure({ ...options, port, httpSocket: socket }, (...[untrusted, secured]) => {
          if (untrusted === null) callback(null, secured);
          else callback(connectError(untrusted, 'tls'), null);
        });
      }
    });
  };
}

function connectError(cause: Error, stage: 'connection' | 'tls'): EgressError {
  if (cause instanceof errors.ConnectTimeoutError) {
    return new EgressError('timeout', `no connection within ${CONNECT_MS / 1000} s`, { cause });
  }
  const what = stage === 'tls' ? 'TLS failed' : 'no connection';
  return new EgressError(stage, `${what}${codeOf(cause)}`, { cause });
}
