import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { javaCommand } from '../../infra/embedded/kafka/kafka.ts';
import { freePort } from '../../infra/embedded/ports.ts';
import { startService } from '../../infra/embedded/service.ts';
import type { EmbeddedService } from '../../infra/embedded/service.ts';
import { createLogger } from '../../infra/log.ts';
import { onFolder } from './files.ts';

const path = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const SERVER = path('python/clickhouse_server.py');
const LIBRARY = path('../../.cache/clickhouse-25.8.2/chdb/_chdb.abi3.so');
const JARS = path('../../.cache/zookeeper-3.9.5/lib/*');
const CLUSTER_CONFIG = readFileSync(path('../../deploy/clickhouse/cluster.xml'), 'utf8');
const USERS_CONFIG = readFileSync(path('../../deploy/clickhouse/users.xml'), 'utf8');
const log = createLogger('clickhouse-cluster', 'warn');

/** A server that can be killed, and started again on its data. */
export interface Restartable {
  /** SIGKILL. */
  kill(): Promise<void>;
  start(): Promise<void>;
}

export interface ClickHouseReplica extends Restartable {
  /** Its macro `replica`. */
  readonly name: string;
  /** As the user who writes. */
  readonly url: string;
  /** Its answer to a statement of the user who writes. */
  query(sql: string): Promise<string>;
  /** Deletes its data while it does not run. */
  empty(): void;
}

export interface ClickHouseCluster {
  /** For `CLICKHOUSE_CLUSTER`. */
  readonly name: string;
  readonly replicas: readonly ClickHouseReplica[];
  readonly keeper: Restartable;
  /** Of a balancer, which gives each new connection to the next replica that accepts it. */
  readonly url: string;
  /** Makes the balancer choose among these replicas only. */
  balance(among: readonly ClickHouseReplica[]): void;
  /** Writes these replicas, only, to `remote_servers` of every server, which reads it again within seconds. */
  list(among: readonly ClickHouseReplica[]): void;
  stop(): Promise<void>;
}

const USER = 'tds';
const PASSWORD = 'writer';
const API_PASSWORD = 'reader';

/** ClickHouse servers on loopback with the configuration of `deploy/clickhouse/`; ZooKeeper takes the place of its Keepers. */
export async function startClickHouseCluster({
  replicas: count,
}: {
  replicas: number;
}): Promise<ClickHouseCluster> {
  return await onFolder('tds-clickhouse-cluster-', async (folder) => await startCluster(folder, count));
}

/** Starts it; after a failure nothing is left running. */
async function startCluster(folder: string, count: number): Promise<ClickHouseCluster> {
  const started: (Restartable & { stop(): Promise<void> })[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(started.map((one) => one.stop()));
  };
  try {
    const keeperPort = await freePort();
    const keeper = await restartable(() => startZooKeeper(join(folder, 'keeper'), keeperPort));
    started.push(keeper);
    const ports = await Promise.all(Array.from({ length: count }, portsOfServer));
    const config = clusterConfig(
      keeperPort,
      ports.map(({ tcp }) => tcp),
    );
    const starting = ports.map((own, index) =>
      startServer(join(folder, nameOf(index)), own, { config, grants: DOCUMENTED_GRANTS }),
    );
    const settled = await Promise.allSettled(starting);
    const replicas = settled.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    started.push(...replicas);
    const failed = settled.find((one) => one.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    const balancer = await startBalancer();
    const balance: ClickHouseCluster['balance'] = (among) =>
      balancer.balance(among.map(({ url }) => Number(new URL(url).port)));
    balance(replicas);
    const list: ClickHouseCluster['list'] = (among) => {
      const listed = ports.flatMap(({ tcp }, index) =>
        among.some(({ name }) => name === nameOf(index)) ? [tcp] : [],
      );
      const written = clusterConfig(keeperPort, listed);
      for (const { name } of replicas) writeFileSync(join(folder, name, CONFIG_FILE), written);
    };
    return {
      name: 'main',
      replicas,
      keeper,
      url: urlsOf(balancer.port).url,
      balance,
      list,
      async stop() {
        await balancer.close();
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** One server, where tests may create databases whose names begin with `tds`. */
export async function startClickHouseServer(): Promise<{
  url: string;
  apiUrl: string;
  stop(): Promise<void>;
}> {
  return await onFolder(
    'tds-clickhouse-server-',
    async (folder) =>
      await startServer(join(folder, 'clickhouse'), await portsOfServer(), {
        config: '<clickhouse/>',
        users: USERS_CONFIG.replace('tds.*', 'tds*.*'),
        grants: ['GRANT ALL ON *.*'],
      }),
  );
}

interface Ports {
  readonly http: number;
  readonly tcp: number;
  readonly interserver: number;
}

const portsOfServer = async (): Promise<Ports> => ({
  http: await freePort(),
  tcp: await freePort(),
  interserver: await freePort(),
});

const urlsOf = (port: number): { url: string; apiUrl: string } => ({
  url: `http://${USER}:${PASSWORD}@127.0.0.1:${port}/tds`,
  apiUrl: `http://api:${API_PASSWORD}@127.0.0.1:${port}/tds`,
});

const nameOf = (index: number): string => `clickhouse-${index + 1}`;
const CONFIG_FILE = 'config.d/token-data-service.xml';

/** `deploy/clickhouse/cluster.xml` with the addresses of the test. */
function clusterConfig(keeperPort: number, tcpPorts: readonly number[]): string {
  const node = (host: string, port: number): string => `<host>${host}</host><port>${port}</port>`;
  const list = (tag: string, all: readonly number[]): string =>
    all.map((port) => `<${tag}>${node('127.0.0.1', port)}</${tag}>`).join('');
  return CLUSTER_CONFIG.replace(/(<zookeeper>)[^]*(<\/zookeeper>)/, `$1${list('node', [keeperPort])}$2`)
    .replace(/(<\/internal_replication>)[^]*(<\/shard>)/, `$1${list('replica', tcpPorts)}$2`)
    .replace(
      '<interserver_http_host from_env="REPLICA"/>',
      '<interserver_http_host>127.0.0.1</interserver_http_host>',
    );
}

/** What the official image has beside `deploy/clickhouse/`, and limits for a small machine. */
const serverConfig = (home: string, { http, tcp, interserver }: Ports): string => `<clickhouse>
  <logger><level>none</level><console>0</console></logger>
  <listen_host>127.0.0.1</listen_host>
  <http_port>${http}</http_port><tcp_port>${tcp}</tcp_port><interserver_http_port>${interserver}</interserver_http_port>
  <path>${home}/data/</path><tmp_path>${home}/tmp/</tmp_path><user_files_path>${home}/files/</user_files_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <mark_cache_size>134217728</mark_cache_size>
  <max_server_memory_usage>1500000000</max_server_memory_usage>
  <background_pool_size>4</background_pool_size>
</clickhouse>`;

/** What docs/operations.md asks for. */
const DOCUMENTED_GRANTS = ['GRANT ALL ON tds.*', 'GRANT CLUSTER ON *.*', 'GRANT SELECT ON system.replicas'];

const usersConfig = (grants: readonly string[]): string => `<clickhouse>
  <profiles><default/></profiles>
  <quotas><default/></quotas>
  <users><${USER}>
    <password>${PASSWORD}</password><profile>default</profile><quota>default</quota>
    <networks><ip>127.0.0.1</ip></networks>
    <grants>${grants.map((grant) => `<query>${grant}</query>`).join('')}</grants>
  </${USER}></users>
</clickhouse>`;

/** The macro `replica` is the name of the folder. */
async function startServer(
  home: string,
  ports: Ports,
  { config, users = USERS_CONFIG, grants }: { config: string; users?: string; grants: readonly string[] },
): Promise<ClickHouseReplica & { readonly apiUrl: string; stop(): Promise<void> }> {
  const name = basename(home);
  const write = (file: string, text: string): void => writeFileSync(join(home, file), text);
  for (const part of ['config.d', 'users.d']) mkdirSync(join(home, part), { recursive: true });
  write('config.xml', serverConfig(home, ports));
  write('users.xml', usersConfig(grants));
  write(CONFIG_FILE, config);
  write('users.d/token-data-service.xml', users);
  const urls = urlsOf(ports.http);
  const query = async (sql: string, database = 'tds'): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${ports.http}/?database=${database}`, {
      method: 'POST',
      headers: { 'X-ClickHouse-User': USER, 'X-ClickHouse-Key': PASSWORD },
      body: sql,
    });
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    return text;
  };
  const server = await restartable(() =>
    startService({
      name,
      url: urls.url,
      program: {
        command: 'python3',
        args: [SERVER, LIBRARY, `--config-file=${join(home, 'config.xml')}`],
        stopSignal: 'SIGTERM',
        graceMs: 20_000,
      },
      watch: 'guard',
      env: { REPLICA: name, API_PASSWORD, CLICKHOUSE_WATCHDOG_ENABLE: '0', TZ: 'UTC' },
      pidFile: join(home, 'pids'),
      // The official image creates the database.
      probe: async () => void (await query('CREATE DATABASE IF NOT EXISTS tds', 'default')),
      readyMs: 120_000,
      log,
    }),
  );
  const empty = (): void => {
    rmSync(join(home, 'data'), { recursive: true });
  };
  return { ...server, ...urls, name, query, empty };
}

async function startZooKeeper(home: string, port: number): Promise<EmbeddedService> {
  mkdirSync(home, { recursive: true });
  const config = join(home, 'zoo.cfg');
  const lines = ['tickTime=500', `dataDir=${home}`, `clientPort=${port}`, 'clientPortAddress=127.0.0.1'];
  writeFileSync(config, [...lines, 'admin.enableServer=false', ''].join('\n'));
  const jvm = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'];
  return await startService({
    name: 'zookeeper',
    url: `127.0.0.1:${port}`,
    program: {
      command: javaCommand(),
      args: [...jvm, '-cp', JARS, 'org.apache.zookeeper.server.ZooKeeperServerMain', config],
      stopSignal: 'SIGTERM',
      graceMs: 10_000,
    },
    watch: 'guard',
    pidFile: join(home, 'pids'),
    probe: () => answersSrvr(port),
    readyMs: 60_000,
    log,
  });
}

/** ZooKeeper's command `srvr`, which it answers once it serves. */
async function answersSrvr(port: number): Promise<void> {
  const socket = connect(port, '127.0.0.1', () => socket.end('srvr'));
  const answer = await socket.setEncoding('utf8').reduce((all: string, chunk: string) => all + chunk, '');
  if (!answer.includes('Mode: ')) throw new Error(`ZooKeeper answered: ${answer}`);
}

async function restartable(
  launch: () => Promise<EmbeddedService>,
): Promise<Restartable & { stop(): Promise<void> }> {
  let service = await launch();
  return {
    stop: () => service.stop(),
    async kill() {
      process.kill(service.pid, 'SIGKILL');
      await service.exited;
    },
    async start() {
      service = await launch();
    },
  };
}

async function startBalancer(): Promise<{
  port: number;
  balance(ports: readonly number[]): void;
  close(): Promise<void>;
}> {
  let ports: readonly number[] = [];
  let turn = 0;
  const sockets = new Set<{ destroy(): unknown }>();
  const server = createServer((client) => {
    const first = turn++;
    const pass = (attempt: number): void => {
      const upstream = connect(ports[(first + attempt) % ports.length] ?? 0, '127.0.0.1');
      sockets.add(upstream.once('close', () => sockets.delete(upstream)));
      let isOpen = false;
      upstream.once('connect', () => {
        isOpen = true;
        client.pipe(upstream).pipe(client);
      });
      upstream.on('error', () => {
        if (isOpen || attempt + 1 >= ports.length) client.destroy();
        else pass(attempt + 1);
      });
      client.once('close', () => upstream.destroy());
    };
    sockets.add(client.on('error', () => {}).once('close', () => sockets.delete(client)));
    pass(0);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    balance: (among) => void (ports = among),
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
