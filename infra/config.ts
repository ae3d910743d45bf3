import { createHmac } from 'node:crypto';
import { isIP, isIPv4, isIPv6 } from 'node:net';

import { z } from 'zod';

import { isObjectStore } from './object-store/store.ts';
import { parseSentinelUrl } from './redis/sentinel.ts';
import { AppError } from '../schemas/errors.ts';
import { parseNetwork } from './networks.ts';

/**
 * The declaration of every setting. Settings come from the environment; all invalid ones are reported together at start.
 */

const integer = (min: number, max: number) => {
  const error = `must be a whole number from ${min} to ${max}`;
  return z.coerce.number(error).int(error).min(min, error).max(max, error);
};
const decimal = (min: number, max: number) => {
  const error = `must be a number from ${min} to ${max}`;
  return z.coerce.number(error).min(min, error).max(max, error);
};
const port = integer(0, 65_535);
const url = (...schemes: string[]) =>
  z.url({ protocol: new RegExp(`^(${schemes.join('|')})$`), error: `must be a URL (${schemes.join(', ')})` });
const list = z.string().transform((text) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== ''),
);
const networks = list.pipe(
  z.array(
    z.string().transform((text, context) => {
      const network = parseNetwork(text);
      if (network === null) context.addIssue(`${text} is not an address or network`);
      return network ?? z.NEVER;
    }),
  ),
);
/** kafkajs takes no address of IPv6. */
const brokers = list.pipe(
  z.array(
    z.string().refine(isBroker, {
      error: ({ input }) => `${String(input)} is not host:port`,
    }),
  ),
);
/** `ip` or `ip:port`, IPv6 as `[ip]:port` where a port follows. */
const nameServers = list.pipe(
  z.array(
    z.string().refine(isNameServer, {
      error: ({ input }) => `${String(input)} is not an ip or ip:port`,
    }),
  ),
);

const SASL_MECHANISMS = ['plain', 'scram-sha-256', 'scram-sha-512'] as const;
const VERIFY_EVENTS = ['sample', 'all', 'head', 'refuse', 'record', 'off'] as const;
const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'silent'] as const;

interface Setting<T> {
  readonly env: string;
  readonly schema: z.ZodType<T>;
  /** The value when the variable is unset or empty. */
  readonly fallback: T;
  readonly doc: string;
}

function setting<T>(env: string, schema: z.ZodType<T>, fallback: NoInfer<T>, doc: string): Setting<T> {
  return { env, schema, fallback, doc };
}

export const settings = {
  starknetRpcUrl: setting(
    'STARKNET_RPC_URL',
    url('http', 'https').nullable(),
    null,
    'URL of a Starknet node (JSON-RPC 0.8, 0.9 or 0.10); unset: a simulated chain',
  ),
  starknetWsUrl: setting(
    'STARKNET_WS_URL',
    url('ws', 'wss').nullable(),
    null,
    "URL of the node's WebSocket, over which it announces new blocks; unset: its head is polled every HEAD_POLL_MS",
  ),
  kafkaBrokers: setting(
    'KAFKA_BROKERS',
    brokers,
    [],
    'Kafka brokers as a list of host:port; unset: embedded Apache Kafka',
  ),
  kafkaTopicPrefix: setting(
    'KAFKA_TOPIC_PREFIX',
    z.string().regex(/^[A-Za-z0-9._-]*$/),
    '',
    'prefix of every topic and consumer group',
  ),
  kafkaSsl: setting('KAFKA_SSL', z.stringbool('must be true or false'), false, 'connect to Kafka over TLS'),
  kafkaSslCa: setting(
    'KAFKA_SSL_CA',
    z.string().nullable(),
    null,
    "PEM file of the CA that signed the brokers' certificates; unset: the CAs that Node.js trusts",
  ),
  kafkaSslCert: setting(
    'KAFKA_SSL_CERT',
    z.string().nullable(),
    null,
    'PEM file of the client certificate, if the brokers require one',
  ),
  kafkaSslKey: setting(
    'KAFKA_SSL_KEY',
    z.string().nullable(),
    null,
    'PEM file of the private key of KAFKA_SSL_CERT',
  ),
  kafkaSaslMechanism: setting(
    'KAFKA_SASL_MECHANISM',
    z.enum(SASL_MECHANISMS, `must be one of ${SASL_MECHANISMS.join(', ')}`).nullable(),
    null,
    `SASL mechanism for Kafka: ${SASL_MECHANISMS.join(', ')}; unset: no SASL`,
  ),
  kafkaSaslUsername: setting('KAFKA_SASL_USERNAME', z.string().nullable(), null, 'SASL username for Kafka'),
  kafkaSaslPassword: setting('KAFKA_SASL_PASSWORD', z.string().nullable(), null, 'SASL password for Kafka'),
  kafkaAllowUnsafeTopics: setting(
    'KAFKA_ALLOW_UNSAFE_TOPICS',
    z.stringbool('must be true or false'),
    false,
    'accept topics that can lose messages because of their retention, replication, leader election or maximum message size, or whose compression the service cannot read',
  ),
  clickhouseUrl: setting(
    'CLICKHOUSE_URL',
    url('http', 'https').nullable(),
    null,
    'ClickHouse URL with user, password and database; unset: embedded ClickHouse',
  ),
  apiClickhouseUrl: setting(
    'API_CLICKHOUSE_URL',
    url('http', 'https').nullable(),
    null,
    'URL of the same ClickHouse database with a read-only user; the API needs no other ClickHouse URL',
  ),
  clickhouseCluster: setting(
    'CLICKHOUSE_CLUSTER',
    z
      .string()
      .regex(/^[A-Za-z0-9_.{}-]+$/, 'must be the name of a cluster')
      .nullable(),
    null,
    'name of the cluster in `remote_servers` of ClickHouse whose replicas hold every table; unset: one server, or ClickHouse Cloud',
  ),
  clickhouseInsertQuorum: setting(
    'CLICKHOUSE_INSERT_QUORUM',
    integer(2, 99),
    2,
    'replicas of CLICKHOUSE_CLUSTER that must have stored an insert before it is acknowledged',
  ),
  databaseUrl: setting(
    'DATABASE_URL',
    url('postgres', 'postgresql').nullable(),
    null,
    'PostgreSQL URL; unset: embedded PostgreSQL',
  ),
  apiDatabaseUrl: setting(
    'API_DATABASE_URL',
    url('postgres', 'postgresql').nullable(),
    null,
    'URL of the same PostgreSQL database with a role that may only SELECT; unset: role `tds_api`, created by `tds migrate` with a password derived from SECRET_KEY',
  ),
  redisUrl: setting(
    'REDIS_URL',
    z
      .union([url('redis', 'rediss'), z.string().refine((text) => parseSentinelUrl(text) !== null)], {
        error: 'must be a URL (redis, rediss), or redis+sentinel://host:port,…/master',
      })
      .nullable(),
    null,
    'URL of Redis, which holds counters that may be lost; for Sentinels redis+sentinel://[user:password@]host:port,…/master[/database]; unset: embedded redis-server',
  ),
  redisKeyPrefix: setting(
    'REDIS_KEY_PREFIX',
    z.string().max(100),
    'tds:',
    'prefix of every Redis key; services that share a Redis need different ones',
  ),
  redisTimeoutMs: setting(
    'REDIS_TIMEOUT_MS',
    integer(10, 60_000),
    300,
    'timeout of a Redis command, in milliseconds',
  ),
  port: setting('PORT', port, 8080, 'port of the API'),
  host: setting('HOST', z.string().min(1), '127.0.0.1', 'address the API listens on'),
  ownPorts: setting(
    'OWN_PORTS',
    list.pipe(z.array(z.string().transform(Number).pipe(z.int().min(1).max(65_535)))),
    [],
    'comma-separated ports that webhooks and metadata fetches must not reach at private addresses, in addition to the ports in the URLs of the process: set it to the port of Redis and other internal ports; an embedded start sets it',
  ),
  metricsPort: setting(
    'METRICS_PORT',
    port,
    0,
    "port of a role's /metrics and /healthz; 0: any free port, logged as `metrics_url`",
  ),
  metricsHost: setting(
    'METRICS_HOST',
    z.string().min(1),
    '127.0.0.1',
    "address a role's /metrics and /healthz listen on, without authentication",
  ),
  dataDir: setting('DATA_DIR', z.string().min(1), '.data', 'data folder of the embedded stores'),
  indexFrom: setting(
    'INDEX_FROM',
    integer(0, 0xffff_fffe).nullable(),
    null,
    'first height to index; unset: 0 on the simulated chain; with a real node, the height accepted on L1 at the first start. If the node reports none: 0 if its head is at most 10,000, otherwise the ingester waits until it reports one or this is set',
  ),
  secretKey: setting(
    'SECRET_KEY',
    z
      .string()
      .regex(/^[0-9a-fA-F]{64}$/, 'must be 32 bytes as 64 hex digits')
      .transform((hex) => Buffer.from(hex, 'hex'))
      .nullable(),
    null,
    'key that encrypts stored secrets, 32 bytes as hex; unset in an embedded start: generated in DATA_DIR/secret.key',
  ),
  secretKeysPrevious: setting(
    'SECRET_KEYS_PREVIOUS',
    z
      .string()
      .regex(/^[0-9a-fA-F]{64}(,[0-9a-fA-F]{64})*$/, 'must be keys of 64 hex digits, with commas between')
      .transform((text) => text.split(',').map((hex) => Buffer.from(hex, 'hex'))),
    [],
    'previous SECRET_KEYs, comma-separated, still accepted for decryption',
  ),
  backfillChunkBlocks: setting(
    'BACKFILL_CHUNK_BLOCKS',
    integer(1, 100_000_000),
    100_000,
    'heights per backfill chunk',
  ),
  backfillConcurrency: setting(
    'BACKFILL_CONCURRENCY',
    integer(1, 64),
    2,
    'backfill chunks that one ingester indexes concurrently',
  ),
  prefetchBytes: setting(
    'PREFETCH_BYTES',
    integer(1_000_000, 4_000_000_000),
    16_000_000,
    'maximum size of the prefetched blocks of a chunk, in bytes',
  ),
  rpcConcurrency: setting('RPC_CONCURRENCY', integer(1, 256), 16, 'concurrent calls to the node per process'),
  rpcTimeoutMs: setting(
    'RPC_TIMEOUT_MS',
    integer(100, 600_000),
    10_000,
    'timeout of a call to the node, in milliseconds',
  ),
  verifyEvents: setting(
    'VERIFY_EVENTS',
    z.enum(VERIFY_EVENTS, `must be one of ${VERIFY_EVENTS.join(', ')}`),
    'sample',
    'blocks whose commitments are compared: sample, all, head, refuse, record or off (docs/operations.md)',
  ),
  verifyIncomplete: setting(
    'VERIFY_INCOMPLETE',
    z.enum(['refuse', 'accept'], 'must be refuse or accept'),
    'accept',
    'a block that lacks data that the comparison needs: accept indexes it, refuse retries until the node returns it whole (docs/operations.md)',
  ),
  headPollMs: setting(
    'HEAD_POLL_MS',
    integer(10, 60_000),
    250,
    'polling interval of the head block, in milliseconds; at least 1000 ms while the node announces new blocks',
  ),
  l1PollSeconds: setting(
    'L1_POLL_SECONDS',
    integer(1, 3600),
    2,
    'polling interval of the height accepted on L1, in seconds',
  ),
  stallSeconds: setting(
    'STALL_SECONDS',
    integer(1, 86_400),
    60,
    'seconds without progress after which an alarm is raised',
  ),
  headStallSeconds: setting(
    'HEAD_STALL_SECONDS',
    integer(0, 604_800),
    300,
    'seconds without a new block of the node after which an alarm is raised; 0: never, as for a devnet that is often idle',
  ),
  batchRows: setting(
    'BATCH_ROWS',
    integer(1, 1_000_000),
    50_000,
    'rows of the largest table per insert during catch-up',
  ),
  observerConcurrency: setting(
    'OBSERVER_CONCURRENCY',
    integer(1, 256),
    8,
    'tokens whose metadata is read from the node concurrently',
  ),
  observerCallsPerSecond: setting(
    'OBSERVER_CALLS_PER_SECOND',
    integer(1, 100_000),
    100,
    'calls per second to the node for token metadata, and as many for balances',
  ),
  priceFeedUrl: setting(
    'PRICE_FEED_URL',
    url('http', 'https').nullable(),
    null,
    "base URL of DefiLlama's coins API, such as https://coins.llama.fi; unset: simulated prices with the simulated chain, otherwise no prices",
  ),
  pricePollSeconds: setting(
    'PRICE_POLL_SECONDS',
    integer(1, 86_400),
    120,
    'polling interval of the prices of common tokens, in seconds',
  ),
  priceTimeoutMs: setting(
    'PRICE_TIMEOUT_MS',
    integer(100, 600_000),
    10_000,
    'timeout of a call to the price feed or the token list, in milliseconds',
  ),
  priceMaxAgeSeconds: setting(
    'PRICE_MAX_AGE_SECONDS',
    integer(1, 10_000_000),
    3600,
    'maximum age of a price when it is read from the feed, in seconds; older prices are not published',
  ),
  priceJumpFactor: setting(
    'PRICE_JUMP_FACTOR',
    decimal(1.01, 1e6),
    2,
    'largest price change of a token, as a factor up or down from its last published price, that is published without PRICE_CONFIRMATIONS',
  ),
  priceConfirmations: setting(
    'PRICE_CONFIRMATIONS',
    integer(0, 1000),
    5,
    'further readings, at least 30 s apart and within 10 % of the first, that a larger price change needs before it is published',
  ),
  tokenListUrl: setting(
    'TOKEN_LIST_URL',
    url('http', 'https').nullable(),
    null,
    "URL of AVNU's token list, such as https://starknet.api.avnu.fi/v1/starknet/tokens; unset: a simulated list with the simulated chain, otherwise no list",
  ),
  tokenListPollSeconds: setting(
    'TOKEN_LIST_POLL_SECONDS',
    integer(1, 604_800),
    3600,
    'polling interval of the token list, in seconds',
  ),
  ipfsGatewayUrl: setting(
    'IPFS_GATEWAY_URL',
    url('http', 'https'),
    'https://ipfs.io',
    'base URL, without `/ipfs/…`, of the IPFS gateway that NFT metadata is fetched through; unset with the simulated chain: a simulated gateway',
  ),
  ipfsPublicGatewayUrl: setting(
    'IPFS_PUBLIC_GATEWAY_URL',
    url('http', 'https').nullable(),
    null,
    'base URL of the IPFS gateway in the image links that the API returns; unset: IPFS_GATEWAY_URL',
  ),
  nftRetryBaseSeconds: setting(
    'NFT_RETRY_BASE_SECONDS',
    decimal(0.001, 86_400),
    300,
    'seconds before the first retry of an NFT metadata fetch; doubled after each further failure',
  ),
  nftRetryMaxSeconds: setting(
    'NFT_RETRY_MAX_SECONDS',
    integer(1, 31_536_000),
    86_400,
    'maximum delay between two retries of an NFT metadata fetch, in seconds',
  ),
  nftAttempts: setting(
    'NFT_ATTEMPTS',
    integer(1, 1000),
    10,
    'consecutive failures after which an NFT metadata fetch is not retried any more',
  ),
  nftTimeoutMs: setting(
    'NFT_TIMEOUT_MS',
    integer(10, 40_000),
    6000,
    'timeout of fetching one metadata document, redirects included, in milliseconds',
  ),
  nftConcurrency: setting(
    'NFT_CONCURRENCY',
    integer(1, 1000),
    48,
    'concurrent metadata fetches; at most three quarters of them through the IPFS gateway',
  ),
  nftHostConcurrency: setting(
    'NFT_HOST_CONCURRENCY',
    integer(1, 1000),
    6,
    'concurrent metadata fetches per registrable domain',
  ),
  nftCallsPerSecond: setting(
    'NFT_CALLS_PER_SECOND',
    integer(1, 100_000),
    200,
    'calls per second to the node for metadata URIs',
  ),
  nftCatchUpSeconds: setting(
    'NFT_CATCH_UP_SECONDS',
    integer(1, 604_800),
    3600,
    'interval of the sweep for NFTs whose metadata was never fetched, in seconds',
  ),
  nftAllowNetworks: setting(
    'NFT_ALLOW_NETWORKS',
    networks,
    [],
    'CIDR list of networks that metadata may be fetched from by http or https, even if private; public addresses outside of it are reached by https only',
  ),
  trustedProxies: setting(
    'TRUSTED_PROXIES',
    networks,
    [],
    'CIDR list of proxies whose X-Forwarded-For header is trusted',
  ),
  webhookAllowNetworks: setting(
    'WEBHOOK_ALLOW_NETWORKS',
    networks,
    [],
    'CIDR list of networks that webhooks may reach by http or https, even if private; public addresses outside of it are reached by https only',
  ),
  egressDnsServers: setting(
    'EGRESS_DNS_SERVERS',
    nameServers,
    [],
    'DNS servers, as a list of ip or ip:port, that resolve the hosts of webhooks and metadata; unset: the system resolver',
  ),
  adminUsername: setting(
    'ADMIN_USERNAME',
    z.string().min(1).nullable(),
    null,
    'admin user, created at startup if missing; /readyz answers 503 until the user exists',
  ),
  adminPassword: setting(
    'ADMIN_PASSWORD',
    z.string().min(8).nullable(),
    null,
    'password with which the admin user is created',
  ),
  rateLimitPerHour: setting(
    'RATE_LIMIT_PER_HOUR',
    integer(1, 2_147_483_647).nullable(),
    null,
    'successful calls per hour of an API key without a rate_limit_per_hour of its own, and of all sessions of a user to routes that take a key; unset: unlimited',
  ),
  ipBlockWindowSeconds: setting(
    'IP_BLOCK_WINDOW_SECONDS',
    integer(1, 86_400),
    300,
    'length of a window in seconds that begins with a failed key check of an address: ten failed checks within it block the address until it ends',
  ),
  syncCallsPerMinute: setting(
    'SYNC_CALLS_PER_MINUTE',
    integer(1, 1_000_000),
    60,
    'calls per minute to the encrypted sync, per client address',
  ),
  syncBytesPerHour: setting(
    'SYNC_BYTES_PER_HOUR',
    // Without Redis a process allows a quarter, which must have room for one blob.
    integer(4_194_304, 1_099_511_627_776),
    67_108_864,
    'bytes of blobs that the encrypted sync stores in an hour, per client address',
  ),
  exportFiles: setting(
    'EXPORT_FILES',
    z.string().refine(isObjectStore, 'must be a folder or s3://BUCKET/PREFIX').nullable(),
    null,
    'folder or `s3://` URL to which `tds export build` writes; the API serves its files; unset: none',
  ),
  exportRate: setting(
    'EXPORT_RATE',
    integer(100, 100_000_000).nullable(),
    null,
    'transfers per second that the exports of an API process send together while it reads pages; unset: 8000 for each core',
  ),
  streamsPerKey: setting(
    'STREAMS_PER_KEY',
    integer(1, 100_000),
    2500,
    'open streams of transfers of an API key, or of all sessions of a user, in each API process',
  ),
  streamsPerUser: setting(
    'STREAMS_PER_USER',
    integer(1, 100_000),
    5000,
    'open streams of transfers of all keys and sessions of a user, in each API process; at least STREAMS_PER_KEY',
  ),
  sessionHours: setting('SESSION_HOURS', integer(1, 8760), 24, 'lifetime of a session, in hours'),
  commandTimeoutMs: setting(
    'COMMAND_TIMEOUT_MS',
    integer(100, 60_000),
    5000,
    'time that a write waits for its outcome before the API answers 503, in milliseconds',
  ),
  webhookRetryDelays: setting(
    'WEBHOOK_RETRY_DELAYS',
    z
      .string()
      .regex(/^[0-9]+(\.[0-9]+)?(,[0-9]+(\.[0-9]+)?)*$/, 'must be seconds, with commas between')
      .transform((text) => text.split(',').map(Number)),
    [30, 300, 1800, 7200, 43_200],
    'seconds before each retry of a delivery, comma-separated; when the last retry fails the delivery is dead',
  ),
  webhookTimeoutMs: setting(
    'WEBHOOK_TIMEOUT_MS',
    integer(10, 120_000),
    10_000,
    'timeout of one delivery attempt, in milliseconds',
  ),
  webhookDisableAfter: setting(
    'WEBHOOK_DISABLE_AFTER',
    integer(1, 1_000_000),
    10,
    'consecutive dead deliveries that disable a webhook',
  ),
  webhookConcurrency: setting(
    'WEBHOOK_CONCURRENCY',
    integer(1, 10_000),
    512,
    'concurrent delivery attempts per dispatcher',
  ),
  webhookEndpointConcurrency: setting(
    'WEBHOOK_ENDPOINT_CONCURRENCY',
    integer(1, 1000),
    32,
    'concurrent delivery attempts to one webhook that answers quickly',
  ),
  webhookHistoryDays: setting(
    'WEBHOOK_HISTORY_DAYS',
    integer(1, 10_000),
    30,
    'days that finished deliveries are kept',
  ),
  webhookMaxDeliveries: setting(
    'WEBHOOK_MAX_DELIVERIES',
    integer(1, 1_000_000_000),
    1_000_000,
    'maximum number of deliveries kept per webhook: above it, the oldest finished ones are deleted, and a webhook with more pending ones is disabled',
  ),
  webhookMaxDeliveriesPerUser: setting(
    'WEBHOOK_MAX_DELIVERIES_PER_USER',
    integer(1, 1_000_000_000),
    5_000_000,
    'maximum number of deliveries kept per user, divided equally among the webhooks of the user',
  ),
  logLevel: setting(
    'LOG_LEVEL',
    z.enum(LOG_LEVELS, `must be one of ${LOG_LEVELS.join(', ')}`),
    'info',
    'level of the JSON log',
  ),
} as const;

export type Config = {
  readonly [K in keyof typeof settings]: (typeof settings)[K] extends Setting<infer T> ? T : never;
};

/**
 * Parses the environment; throws `CONFIG_INVALID` naming every wrong setting at once.
 *
 * @param options.hasAdminPassword false for the API, which needs to know the admin's name only
 */
export function loadConfig(
  env: NodeJS.ProcessEnv,
  { hasAdminPassword = true }: { readonly hasAdminPassword?: boolean } = {},
): Config {
  const problems: string[] = [];
  const entries = Object.entries<Setting<unknown>>(settings).map(([key, { env: name, schema, fallback }]) => {
    const text = env[name];
    if (text === undefined || text === '') return [key, fallback];
    const parsed = schema.safeParse(text);
    if (parsed.success) return [key, parsed.data];
    problems.push(`${name}: ${[...new Set(parsed.error.issues.map(({ message }) => message))].join('; ')}`);
    return [key, fallback];
  });
  const isSet = (name: string): boolean => (env[name] ?? '') !== '';
  if (hasAdminPassword && isSet('ADMIN_USERNAME') && !isSet('ADMIN_PASSWORD')) {
    problems.push('ADMIN_PASSWORD: must be set when ADMIN_USERNAME is');
  }
  if (isSet('CLICKHOUSE_CLUSTER') && !isSet('CLICKHOUSE_URL') && !isSet('API_CLICKHOUSE_URL')) {
    problems.push('CLICKHOUSE_CLUSTER: needs CLICKHOUSE_URL, since the embedded ClickHouse is one server');
  }
  if (isSet('CLICKHOUSE_CLUSTER') && URL.parse(env['CLICKHOUSE_URL'] ?? '')?.pathname === '/') {
    problems.push('CLICKHOUSE_URL: must name the database, since CLICKHOUSE_CLUSTER is set');
  }
  if (isSet('CLICKHOUSE_INSERT_QUORUM') && !isSet('CLICKHOUSE_CLUSTER')) {
    problems.push('CLICKHOUSE_INSERT_QUORUM: needs CLICKHOUSE_CLUSTER, whose replicas it counts');
  }
  if (problems.length > 0)
    throw new AppError('CONFIG_INVALID', `Wrong settings:\n  ${problems.join('\n  ')}`);
  // Keys and value types are those of `settings`, which TypeScript cannot follow through Object.entries.
  const config = Object.fromEntries(entries) as Config;
  return Object.freeze({ ...config, apiDatabaseUrl: config.apiDatabaseUrl ?? derivedApiUrl(config) });
}

function isBroker(text: string): boolean {
  return isPort(/^[^\s:/]+:([0-9]{1,5})$/.exec(text)?.[1]);
}

function isNameServer(text: string): boolean {
  if (isIP(text) !== 0) return true;
  const [, v6, v4, digits] = /^(?:\[(.*)\]|([^:]*)):([0-9]{1,5})$/.exec(text) ?? [];
  return (isIPv6(v6 ?? '') || isIPv4(v4 ?? '')) && isPort(digits);
}

const isPort = (digits: string | undefined): boolean => Number(digits) >= 1 && Number(digits) <= 65_535;

/** The URL of the read-only role, derived from the owner's URL: every process derives the same. */
function derivedApiUrl({ databaseUrl, secretKey }: Config): string | null {
  if (databaseUrl === null || secretKey === null) return null;
  const url = new URL(databaseUrl);
  url.username = 'tds_api';
  url.password = createHmac('sha256', secretKey).update('password of the role tds_api').digest('base64url');
  return url.href;
}

/** The value of a setting; throws `CONFIG_INVALID` if it is unset. */
export function required<K extends keyof Config>(config: Config, key: K): NonNullable<Config[K]> {
  const value = config[key];
  if (value === null || (Array.isArray(value) && value.length === 0)) {
    const { env, doc } = settings[key];
    // What an embedded start does without the setting does not help where it is required.
    throw new AppError('CONFIG_INVALID', `${env} must be set: ${doc.replace(/; unset\b.*$/s, '')}`);
  }
  return value as NonNullable<Config[K]>;
}
