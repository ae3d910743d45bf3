/** Names of the users and of the database of the embedded ClickHouse. */
export const WRITER = 'tds';
export const READER = 'api';
export const DATABASE = 'tds';

export interface ServerOptions {
  readonly port: number;
  /** Folder of the tables. */
  readonly dataDir: string;
  /** Where this configuration is stored: ClickHouse reads the users from the same file. */
  readonly file: string;
  /** Limit of the whole server, in bytes; one query may use 60 % of it. */
  readonly memory: number;
  /** SHA-256 of the passwords, in hex. */
  readonly writerDigest: string;
  readonly readerDigest: string;
}

type Element = { readonly [tag: string]: string | number | Element | readonly string[] };

/** The server's configuration in ClickHouse's XML: limits for one small machine, and three users. */
export function serverConfig({ port, dataDir, file, memory, ...digests }: ServerOptions): string {
  const loopback = { ip: '127.0.0.1' };
  const queryMemory = Math.round(memory * 0.6);
  return toXml({
    clickhouse: {
      path: dataDir,
      users_config: file,
      http_port: port,
      listen_host: '127.0.0.1',
      max_server_memory_usage: memory,
      // The default is 5 GiB.
      mark_cache_size: 128 * 1024 * 1024,
      // The default background pools, made for hundreds of tables, would keep some 100 threads.
      background_pool_size: 4,
      background_schedule_pool_size: 8,
      background_fetches_pool_size: 1,
      background_common_pool_size: 2,
      background_move_pool_size: 1,
      // Of comparing the memory in use with what was counted; the default, 50 ms, costs 0.2 % of a core.
      memory_worker_period_ms: 500,
      // Idle threads kept after a burst of queries; the default is 1,000.
      max_thread_pool_free_size: 16,
      users: {
        [WRITER]: {
          password_sha256_hex: digests.writerDigest,
          networks: loopback,
          profile: 'writer',
          quota: 'default',
        },
        [READER]: {
          password_sha256_hex: digests.readerDigest,
          networks: loopback,
          profile: 'reader',
          quota: 'default',
          grants: { query: [`GRANT SELECT ON ${DATABASE}*.*`] },
        },
        // The internal session of the program is always `default`, without a password: its one session is taken by START,
        // so nobody else can log in with it.
        default: {
          no_password: '',
          networks: loopback,
          profile: 'internal',
          quota: 'default',
          grants: {
            query: [
              'GRANT SYSTEM LISTEN ON *.*',
              `GRANT CREATE DATABASE ON ${DATABASE}.*`,
              'GRANT SELECT ON system.numbers',
            ],
          },
        },
      },
      profiles: {
        default: {},
        writer: { max_memory_usage: queryMemory },
        reader: {
          // 2: the settings of a request may change, but not `readonly` itself.
          readonly: 2,
          max_memory_usage: queryMemory,
          cancel_http_readonly_queries_on_client_close: 1,
          // 0 would be no limit.
          constraints: { max_memory_usage: { min: 1, max: queryMemory } },
        },
        internal: {
          max_sessions_for_user: 1,
          function_sleep_max_microseconds_per_block: 0,
          // The statement that waits looks for results this often, in microseconds.
          interactive_delay: 10_000_000,
        },
      },
      quotas: { default: {} },
    },
  });
}

/** The statements of the program: they start the server, then wait until the process ends. */
export const START = [
  `CREATE DATABASE IF NOT EXISTS ${DATABASE}`,
  'SYSTEM START LISTEN HTTP',
  'SELECT sum(sleepEachRow(3600)) FROM system.numbers SETTINGS max_block_size = 1, max_threads = 1',
].join('; ');

function toXml(element: Element): string {
  return Object.entries(element)
    .flatMap(([tag, content]) =>
      (Array.isArray(content) ? content : [content]).map((one) => `<${tag}>${inner(one)}</${tag}>`),
    )
    .join('\n');
}

function inner(content: string | number | Element): string {
  if (typeof content === 'object') return toXml(content);
  return String(content).replaceAll('&', '&amp;').replaceAll('<', '&lt;');
}
