import { createHmac } from 'node:crypto';
import { isIP, isIPv4, isIPv6 } from 'node:net';

import { z } from 'zod';

import { AppError } from '../schemas/errors.ts';
import { parseNetwork } from './networks.ts';

/**
 * Every setting, declared, checked and documented here and nowhere else. Settings come from the environment; a wrong
 * one is named at start, all of them at once. Product code sees URLs only and cannot tell an embedded part from a real one.
 */

const integer = (min: number, max: number) => z.coerce.number().int().min(min).max(max);
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
      if (network === null) context.addIssue(`${text} is no address or network`);
      return network ?? z.NEVER;
    }),
  ),
);
/** `ip` or `ip:port`, IPv6 as `[ip]:port` where a port follows. */
const nameServers = list.pipe(
  z.array(
    z.string().refine(isNameServer, {
      error: ({ input }) => `${String(input)} is no ip or ip:port`,
    }),
  ),
);

interface Setting<T> {
  readonly env: string;
  readonly schema: z.ZodType<T>;
  /** What an unset variable means. */
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
    'Starknet JSON-RPC 0.8, 0.9 or 0.10; unset: a simulated chain',
  ),
  kafkaBrokers: setting('KAFKA_BROKERS', list, [], 'host:port list; unset: embedded Apache Kafka'),
  kafkaTopicPrefix: setting(
    'KAFKA_TOPIC_PREFIX',
    z.string().regex(/^[A-Za-z0-9._-]*$/),
    '',
    'put before every topic and consumer group',
  ),
  clickhouseUrl: setting(
    'CLICKHOUSE_URL',
    url('http', 'https').nullable(),
    null,
    'with user, password and database in it; unset: embedded ClickHouse',
  ),
  apiClickhouseUrl: setting(
    'API_CLICKHOUSE_URL',
    url('http', 'https').nullable(),
    null,
    'the same database as a read-only user; the only one the API is given',
  ),
  databaseUrl: setting(
    'DATABASE_URL',
    url('postgres', 'postgresql').nullable(),
    null,
    'PostgreSQL; unset: embedded PostgreSQL',
  ),
  apiDatabaseUrl: setting(
    'API_DATABASE_URL',
    url('postgres', 'postgresql').nullable(),
    null,
    'the same database as a role that may only SELECT; unset: role `tds_api`, its password made from SECRET_KEY; `tds migrate` makes the role',
  ),
  redisUrl: setting(
    'REDIS_URL',
    url('redis', 'rediss').nullable(),
    null,
    'Redis, for counters that may be lost; unset: embedded redis-server',
  ),
  redisKeyPrefix: setting(
    'REDIS_KEY_PREFIX',
    z.string().max(100),
    'tds:',
    'put before every key in Redis; services that share one need different ones',
  ),
  redisTimeoutMs: setting(
    'REDIS_TIMEOUT_MS',
    integer(10, 60_000),
    300,
    'when Redis owes an answer for so long it is taken for away',
  ),
  port: setting('PORT', port, 8080, "the API's port"),
  host: setting('HOST', z.string().min(1), '127.0.0.1', "the API's address"),
  ownPorts: setting(
    'OWN_PORTS',
    list.pipe(z.array(z.string().transform(Number).pipe(z.int().min(1).max(65_535)))),
    [],
    'further ports that neither webhooks nor fetches of metadata reach, by commas; a start with embedded stores sets them',
  ),
  metricsPort: setting('METRICS_PORT', port, 0, 'where a role serves /metrics on loopback; 0: any free port'),
  dataDir: setting('DATA_DIR', z.string().min(1), '.data', 'where the embedded parts keep their data'),
  indexFrom: setting(
    'INDEX_FROM',
    integer(0, 0xffff_fffe).nullable(),
    null,
    'first height; unset: 0 on the simulated chain, the height accepted on L1 at first start on a real node',
  ),
  secretKey: setting(
    'SECRET_KEY',
    z
      .string()
      .regex(/^[0-9a-fA-F]{64}$/, 'must be 32 bytes as 64 hex digits')
      .transform((hex) => Buffer.from(hex, 'hex'))
      .nullable(),
    null,
    'seals what must be read back; 32 bytes as hex; an embedded start makes DATA_DIR/secret.key',
  ),
  secretKeysBefore: setting(
    'SECRET_KEYS_BEFORE',
    z
      .string()
      .regex(/^[0-9a-fA-F]{64}(,[0-9a-fA-F]{64})*$/, 'must be keys of 64 hex digits, with commas between')
      .transform((text) => text.split(',').map((hex) => Buffer.from(hex, 'hex'))),
    [],
    'keys that SECRET_KEY was before: what they sealed can still be read',
  ),
  backfillChunkBlocks: setting(
    'BACKFILL_CHUNK_BLOCKS',
    integer(1, 100_000_000),
    100_000,
    'heights in one backfill chunk',
  ),
  backfillConcurrency: setting(
    'BACKFILL_CONCURRENCY',
    integer(1, 64),
    2,
    'backfill chunks indexed side by side by one ingester',
  ),
  prefetchBytes: setting(
    'PREFETCH_BYTES',
    integer(1_000_000, 4_000_000_000),
    16_000_000,
    'bound of the blocks held ahead by one chunk',
  ),
  rpcConcurrency: setting(
    'RPC_CONCURRENCY',
    integer(1, 256),
    16,
    'calls to the node in flight, over all chunks of one process',
  ),
  rpcTimeoutMs: setting('RPC_TIMEOUT_MS', integer(100, 600_000), 10_000, 'one call to the node'),
  headPollMs: setting('HEAD_POLL_MS', integer(10, 60_000), 250, 'pause between looks at the head'),
  l1PollSeconds: setting(
    'L1_POLL_SECONDS',
    integer(1, 3600),
    2,
    'pause between looks at the height accepted on L1',
  ),
  stallSeconds: setting('STALL_SECONDS', integer(1, 86_400), 60, 'no progress for so long is an alarm'),
  batchRows: setting(
    'BATCH_ROWS',
    integer(1, 1_000_000),
    50_000,
    'rows of the largest table in one insert while catching up',
  ),
  observerConcurrency: setting(
    'OBSERVER_CONCURRENCY',
    integer(1, 256),
    8,
    'calls to the node in flight for names and other observations',
  ),
  observerCallsPerSecond: setting(
    'OBSERVER_CALLS_PER_SECOND',
    integer(1, 100_000),
    100,
    'calls to the node a second for names and other observations',
  ),
  priceFeedUrl: setting(
    'PRICE_FEED_URL',
    url('http', 'https').nullable(),
    null,
    "where DefiLlama's coins interface is, such as https://coins.llama.fi; unset: simulated prices in an embedded start, else none",
  ),
  pricePollSeconds: setting(
    'PRICE_POLL_SECONDS',
    integer(1, 86_400),
    120,
    'pause between looks at the prices of common tokens',
  ),
  priceTimeoutMs: setting(
    'PRICE_TIMEOUT_MS',
    integer(100, 600_000),
    10_000,
    'one call to the price feed or the token list',
  ),
  priceMaxAgeSeconds: setting(
    'PRICE_MAX_AGE_SECONDS',
    integer(1, 10_000_000),
    3600,
    'upper bound of the age of a price when it is read; older prices are not published',
  ),
  priceJumpFactor: setting(
    'PRICE_JUMP_FACTOR',
    z.coerce.number().min(1.01).max(1e6),
    2,
    'upper bound of the factor between two prices of a token, up or down; a larger jump needs PRICE_CONFIRMATIONS',
  ),
  priceConfirmations: setting(
    'PRICE_CONFIRMATIONS',
    integer(0, 1000),
    5,
    'readings that must agree with a jump, within a tenth and 30 s apart, before it is published',
  ),
  tokenListUrl: setting(
    'TOKEN_LIST_URL',
    url('http', 'https').nullable(),
    null,
    "where AVNU's token list is, such as https://starknet.api.avnu.fi/v1/starknet/tokens; unset: a simulated list in an embedded start, else none",
  ),
  tokenListPollSeconds: setting(
    'TOKEN_LIST_POLL_SECONDS',
    integer(1, 604_800),
    3600,
    'pause between looks at the token list',
  ),
  ipfsGatewayUrl: setting(
    'IPFS_GATEWAY_URL',
    url('http', 'https'),
    'https://ipfs.io',
    'the IPFS gateway that metadata of NFTs is fetched through: the base before `/ipfs/…`; unset on the simulated chain: a simulated one',
  ),
  ipfsPublicGatewayUrl: setting(
    'IPFS_PUBLIC_GATEWAY_URL',
    url('http', 'https').nullable(),
    null,
    'the one that answers show images through; unset: IPFS_GATEWAY_URL',
  ),
  nftRetryBaseSeconds: setting(
    'NFT_RETRY_BASE_SECONDS',
    z.coerce.number().min(0.001).max(86_400),
    300,
    'seconds until the metadata of an NFT is tried again after a first failure; doubled after each further one',
  ),
  nftRetryMaxSeconds: setting(
    'NFT_RETRY_MAX_SECONDS',
    integer(1, 31_536_000),
    86_400,
    'no longer than so many seconds',
  ),
  nftAttempts: setting(
    'NFT_ATTEMPTS',
    integer(1, 1000),
    10,
    'after so many failures in a row the metadata of an NFT is given up for good',
  ),
  nftTimeoutMs: setting(
    'NFT_TIMEOUT_MS',
    integer(10, 40_000),
    6000,
    'one document of metadata, redirects included',
  ),
  nftConcurrency: setting(
    'NFT_CONCURRENCY',
    integer(1, 1000),
    48,
    'attempts under way at a time; three quarters of them may wait for the IPFS gateway',
  ),
  nftHostConcurrency: setting(
    'NFT_HOST_CONCURRENCY',
    integer(1, 1000),
    6,
    'those of them that may wait for the hosts of one other domain',
  ),
  nftCallsPerSecond: setting(
    'NFT_CALLS_PER_SECOND',
    integer(1, 100_000),
    200,
    'calls to the node a second for the URIs of metadata',
  ),
  nftCatchUpSeconds: setting(
    'NFT_CATCH_UP_SECONDS',
    integer(1, 604_800),
    3600,
    'pause between looks through all NFTs for those that nobody has tried to fetch',
  ),
  nftAllowNetworks: setting(
    'NFT_ALLOW_NETWORKS',
    networks,
    [],
    'CIDR list of networks where metadata may be fetched, by http too, besides the public internet by https',
  ),
  trustedProxies: setting(
    'TRUSTED_PROXIES',
    networks,
    [],
    'CIDR list of proxies whose X-Forwarded-For counts',
  ),
  webhookAllowNetworks: setting(
    'WEBHOOK_ALLOW_NETWORKS',
    networks,
    [],
    'CIDR list of networks that webhooks may reach, by http too, besides the public internet by https',
  ),
  egressDnsServers: setting(
    'EGRESS_DNS_SERVERS',
    nameServers,
    [],
    "ip or ip:port list of name servers that are asked for the hosts of webhooks; unset: the system's way",
  ),
  adminUsername: setting(
    'ADMIN_USERNAME',
    z.string().min(1).nullable(),
    null,
    'admin user, created at startup if missing, before /readyz says ready',
  ),
  adminPassword: setting('ADMIN_PASSWORD', z.string().min(8).nullable(), null, "that user's password"),
  rateLimitPerHour: setting(
    'RATE_LIMIT_PER_HOUR',
    integer(1, 2_147_483_647).nullable(),
    null,
    'successful calls an hour of an API key that was made without a rate_limit_per_hour; unset: as many as it likes',
  ),
  ipBlockWindowSeconds: setting(
    'IP_BLOCK_WINDOW_SECONDS',
    integer(1, 86_400),
    300,
    'ten failed key checks of an address, from the first one so long, block it for the rest of that time',
  ),
  syncCallsPerMinute: setting(
    'SYNC_CALLS_PER_MINUTE',
    integer(1, 1_000_000),
    60,
    'calls of the encrypted sync that an address may make in any minute',
  ),
  sessionHours: setting('SESSION_HOURS', integer(1, 8760), 24, 'absolute lifetime of a session'),
  commandTimeoutMs: setting(
    'COMMAND_TIMEOUT_MS',
    integer(100, 60_000),
    5000,
    'how long a write waits for its outcome before 503',
  ),
  webhookRetryDelays: setting(
    'WEBHOOK_RETRY_DELAYS',
    z
      .string()
      .regex(/^[0-9]+(\.[0-9]+)?(,[0-9]+(\.[0-9]+)?)*$/, 'must be seconds, with commas between')
      .transform((text) => text.split(',').map(Number)),
    [30, 300, 1800, 7200, 43_200],
    'seconds of waiting before each retry of a delivery; after the last one has failed it is dead',
  ),
  webhookTimeoutMs: setting(
    'WEBHOOK_TIMEOUT_MS',
    integer(10, 120_000),
    10_000,
    'one attempt of a delivery, to the end of the answer',
  ),
  webhookDisableAfter: setting(
    'WEBHOOK_DISABLE_AFTER',
    integer(1, 1_000_000),
    10,
    'so many dead deliveries in a row disable a webhook',
  ),
  webhookConcurrency: setting(
    'WEBHOOK_CONCURRENCY',
    integer(1, 10_000),
    512,
    'attempts under way at a time in one dispatcher',
  ),
  webhookEndpointConcurrency: setting(
    'WEBHOOK_ENDPOINT_CONCURRENCY',
    integer(1, 1000),
    32,
    'those of them that one webhook may have, when it answers quickly',
  ),
  webhookHistoryDays: setting(
    'WEBHOOK_HISTORY_DAYS',
    integer(1, 10_000),
    30,
    'how long deliveries that are done with are kept',
  ),
  logLevel: setting(
    'LOG_LEVEL',
    z.enum(['trace', 'debug', 'info', 'warn', 'error', 'silent']),
    'info',
    'level of the JSON log lines',
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
    problems.push(`${name}: ${parsed.error.issues.map((issue) => issue.message).join('; ')}`);
    return [key, fallback];
  });
  const isSet = (name: string): boolean => (env[name] ?? '') !== '';
  if (hasAdminPassword && isSet('ADMIN_USERNAME') && !isSet('ADMIN_PASSWORD')) {
    problems.push('ADMIN_PASSWORD: must be set when ADMIN_USERNAME is');
  }
  if (problems.length > 0)
    throw new AppError('CONFIG_INVALID', `Wrong settings:\n  ${problems.join('\n  ')}`);
  // Keys and value types are those of `settings`, which TypeScript cannot follow through Object.entries.
  const config = Object.fromEntries(entries) as Config;
  return Object.freeze({ ...config, apiDatabaseUrl: config.apiDatabaseUrl ?? derivedApiUrl(config) });
}

function isNameServer(text: string): boolean {
  if (isIP(text) !== 0) return true;
  const [, v6, v4, digits] = /^(?:\[(.*)\]|([^:]*)):([0-9]{1,5})$/.exec(text) ?? [];
  return (isIPv6(v6 ?? '') || isIPv4(v4 ?? '')) && Number(digits) >= 1 && Number(digits) <= 65_535;
}

/** The reading role of a database that was given by its owner's URL alone; every process derives the same. */
function derivedApiUrl({ databaseUrl, secretKey }: Config): string | null {
  if (databaseUrl === null || secretKey === null) return null;
  const url = new URL(databaseUrl);
  url.username = 'tds_api';
  url.password = createHmac('sha256', secretKey).update('password of the role tds_api').digest('base64url');
  return url.href;
}

/** The value of a setting that a role cannot do without. */
export function required<K extends keyof Config>(config: Config, key: K): NonNullable<Config[K]> {
  const value = config[key];
  if (value === null || (Array.isArray(value) && value.length === 0)) {
    throw new AppError('CONFIG_INVALID', `${settings[key].env} must be set: ${settings[key].doc}`);
  }
  return value as NonNullable<Config[K]>;
}
