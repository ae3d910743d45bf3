const SENTINEL_PORT = 26_379;
const SENTINEL_URL =
  /^redis(?<tls>s?)\+sentinel:\/\/(?:(?<username>[^:@/]*)(?::(?<password>[^@/]*))?@)?(?<hosts>[^@/]+)\/(?<name>[^/]+)(?:\/(?<db>\d+))?$/;
const HOST = /^(?<host>[^:[\]]+|\[[^\]]+\])(?::(?<port>\d{1,5}))?$/;

/** A Sentinel that does not answer in this time is left for the next. */
const SENTINEL_TIMEOUT_MS = 2000;

/** Options of ioredis. */
export interface SentinelOptions {
  readonly sentinels: { host: string; port: number }[];
  readonly name: string;
  readonly db: number;
  readonly failoverDetector: true;
  readonly sentinelCommandTimeout: number;
  readonly username?: string;
  readonly password?: string;
  readonly tls?: object;
  readonly sentinelTLS?: object;
  readonly enableTLSForSentinelMode?: true;
}

/**
 * Parses `redis[s]+sentinel://[user:password@]host[:port],…/name[/database]`: the Sentinels that know the master `name`. The
 * credentials are those of the master; `rediss` connects to all of them by TLS. null for any other text.
 */
export function parseSentinelUrl(url: string): SentinelOptions | null {
  const { tls, username = '', password, hosts, name, db } = SENTINEL_URL.exec(url)?.groups ?? {};
  if (hosts === undefined || name === undefined) return null;
  const sentinels = [];
  for (const text of hosts.split(',')) {
    const { host, port = String(SENTINEL_PORT) } = HOST.exec(text)?.groups ?? {};
    if (host === undefined || Number(port) > 65_535) return null;
    sentinels.push({ host: host.replace(/^\[(.*)\]$/, '$1'), port: Number(port) });
  }
  const credentials = decoded({ username, password });
  if (credentials === null) return null;
  return {
    sentinels,
    name,
    db: Number(db ?? 0),
    // Reconnects as soon as the Sentinels announce another master.
    failoverDetector: true,
    sentinelCommandTimeout: SENTINEL_TIMEOUT_MS,
    ...credentials,
    ...(tls === 's' ? { tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true } : {}),
  };
}

/** null when a percent-encoding is invalid. */
function decoded({ username, password }: { username: string; password: string | undefined }) {
  try {
    return {
      ...(username === '' ? {} : { username: decodeURIComponent(username) }),
      ...(password === undefined ? {} : { password: decodeURIComponent(password) }),
    };
  } catch {
    return null;
  }
}
