import { randomBytes } from 'node:crypto';
import { Writable } from 'node:stream';

import { pino } from 'pino';

import { openCommandChannel } from '../../infra/commands/channel.ts';
import type { CommandChannel } from '../../infra/commands/channel.ts';
import { addUser } from '../../infra/bin/operator/accounts.ts';
import { createOperator } from '../../infra/bin/operator/operator.ts';
import { startApi } from '../../api/server.ts';
import { createClickHouse } from '../../infra/clickhouse/client.ts';
import { loadConfig } from '../../infra/config.ts';
import type { Config } from '../../infra/config.ts';
import { createKafka } from '../../infra/kafka/client.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { createMetrics } from '../../infra/metrics.ts';
import { grantApiRole } from '../../infra/postgres/api-role.ts';
import { createPool } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { migrate } from '../../infra/postgres/migrate.ts';
import { Releasers } from '../../infra/lifecycle.ts';
import { createEgress } from '../../pipeline/egress/egress.ts';
import { accounts } from '../../projections/accounts/projector.ts';
import { adCounts } from '../../projections/ad-counts/projector.ts';
import { catalogue } from '../../projections/catalogue/projector.ts';
import type { PostgresProjection } from '../../projections/define.ts';
import { findOutcomes } from '../../projections/outcomes/queries.ts';
import { openBuild } from '../../projections/engine/builds.ts';
import { sync } from '../../projections/sync/projector.ts';
import { servedBuilds } from '../../projections/served.ts';
import { projections } from '../../projections/index.ts';
import { createProjectionMetrics } from '../../projections/engine/metrics.ts';
import { runPostgresProjection } from '../../projections/engine/run/postgres-runner.ts';
import type { ProjectionRun } from '../../projections/engine/run/lifetime.ts';
import { webhooks } from '../../projections/webhooks/projector.ts';
import { isolated } from './isolation.ts';

/** Topics that the API writes. */
const projected: readonly PostgresProjection<unknown>[] = [accounts, sync, webhooks, catalogue, adCounts];

/** An API on real stores, with the projectors of the topics that it writes. */
export interface ApiWorld {
  readonly url: string;
  readonly env: Readonly<Record<string, string>>;
  readonly kafka: Kafka;
  /** Pool of the tables' owner. */
  readonly pool: Pool;
  /** Pool of the API's role. */
  readonly apiPool: Pool;
  readonly commands: CommandChannel;
  /** Every line that API and projector have logged. */
  logged(): string;
  /** Starts and stops the projectors, which run initially. */
  startProjector(): Promise<void>;
  stopProjector(): Promise<void>;
  /** Creates a user and logs in. */
  makeUser(
    username: string,
    email?: string,
    options?: { isAdmin: boolean },
  ): Promise<{ token: string; password: string; id: number }>;
  readonly call: Call;
  /** Another API on the same stores with its own settings and clock; closed with the world. */
  anotherApi(options?: {
    env?: Readonly<Record<string, string>>;
    now?: () => number;
  }): Promise<{ url: string; call: Call; close(): Promise<void> }>;
  /** Closes the API only; `close` closes everything. */
  closeApi(): Promise<void>;
  close(): Promise<void>;
}

export type Call = (
  method: string,
  path: string,
  options?: { headers?: Record<string, string>; token?: string; json?: unknown; body?: string | Buffer },
) => Promise<Answer>;

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The parsed body; undefined if it is not JSON. */
  // oxlint-disable-next-line typescript/no-explicit-any -- tests read answers of any shape
  readonly json: any;
}

export async function apiWorld(env: Readonly<Record<string, string>> = {}): Promise<ApiWorld> {
  const own = await isolated();
  const releasers = new Releasers((name, error) => process.stderr.write(`${name}: ${String(error)}\n`));
  releasers.push('databases', () => own.drop());
  const lines: string[] = [];
  const log = pino(
    { level: 'trace' },
    new Writable({
      write(chunk, _encoding, done) {
        lines.push(String(chunk));
        done();
      },
    }),
  );

  const apiUrl = new URL(own.env.DATABASE_URL);
  apiUrl.username = `api_${randomBytes(4).toString('hex')}`;
  apiUrl.password = randomBytes(12).toString('base64url');
  const fullEnv = {
    ...own.env,
    API_DATABASE_URL: apiUrl.href,
    SECRET_KEY: randomBytes(32).toString('hex'),
    PORT: '0',
    ...env,
  };
  const config = loadConfig({ ...fullEnv, PORT: undefined });
  const pool = createPool(fullEnv.DATABASE_URL, { applicationName: 'test', max: 5 });
  releasers.push('pool', async () => {
    await pool.query(`DROP OWNED BY ${apiUrl.username}`);
    await pool.query(`DROP ROLE ${apiUrl.username}`);
    await pool.end();
  });
  await migrate(pool);
  await grantApiRole(pool, fullEnv.API_DATABASE_URL);
  const kafka = createKafka({
    brokers: config.kafkaBrokers,
    clientId: 'test',
    topicPrefix: config.kafkaTopicPrefix,
    log,
  });
  releasers.push('kafka', () => kafka.close());
  await kafka.ensureTopics();
  const owner = createClickHouse(fullEnv.CLICKHOUSE_URL, { application: 'test' });
  releasers.push('clickhouse', () => owner.close());
  // Other tables stay empty.
  for (const projection of projections) await openBuild(pool, owner, projection);

  let projectors: ProjectionRun[] = [];
  const projectionMetrics = createProjectionMetrics(createMetrics('project'));
  const startProjector = async (): Promise<void> => {
    const common = { kafka, pool, log, metrics: projectionMetrics };
    projectors = await Promise.all(
      projected.map((projection) =>
        runPostgresProjection({ ...common, projection, groupId: projection.name }),
      ),
    );
  };
  const stopProjector = async (): Promise<void> => {
    await Promise.all(projectors.map((projector) => projector.stop()));
    projectors = [];
  };
  await startProjector();
  releasers.push('projector', stopProjector);

  const apiPool = createPool(fullEnv.API_DATABASE_URL, { applicationName: 'test-api', max: 10 });
  releasers.push('api pool', () => apiPool.end());
  const publisher = kafka.publisher();
  releasers.push('publisher', () => publisher.close());
  const builds = () => servedBuilds(apiPool);
  const commands = openCommandChannel({
    publisher,
    databaseUrl: fullEnv.API_DATABASE_URL,
    findOutcomes: async (submitted) => await findOutcomes(apiPool, await builds(), submitted),
    timeoutMs: config.commandTimeoutMs,
    log,
  });
  releasers.push('commands', () => commands.close());
  const serve = async (settings: Config, now?: () => number): ReturnType<typeof startApi> => {
    const metrics = createMetrics('api');
    const egress = createEgress({
      allowNetworks: settings.webhookAllowNetworks,
      ownPorts: [],
      dnsServers: settings.egressDnsServers,
    });
    releasers.push('egress', () => egress.close());
    const reader = createClickHouse(settings.apiClickhouseUrl ?? fullEnv.API_CLICKHOUSE_URL, {
      application: 'test-api',
      isReader: true,
    });
    releasers.push('api clickhouse', () => reader.close());
    const api = await startApi({
      config: { ...settings, port: 0 },
      pool: apiPool,
      clickhouse: reader,
      publisher,
      kafka,
      servedBuilds: builds,
      checkUrl: (url) => egress.checkUrl(url),
      operator: createOperator({
        pool: apiPool,
        clickhouse: reader,
        kafka,
        stallSeconds: settings.stallSeconds,
      }),
      log,
      metrics,
      metricsText: async () => ({ contentType: metrics.contentType, text: await metrics.metrics() }),
      ...(now === undefined ? {} : { now }),
    });
    releasers.push('api', () => api.close());
    return api;
  };
  const api = await serve(config);
  const call = callsTo(api.url);

  return {
    url: api.url,
    env: fullEnv,
    kafka,
    pool,
    apiPool,
    commands,
    logged: () => lines.join(''),
    startProjector,
    stopProjector,
    async makeUser(username, email, { isAdmin } = { isAdmin: false }) {
      const password = `pw-${randomBytes(9).toString('base64url')}`;
      const { id } = await addUser(
        { commands, pool: apiPool, servedBuilds: builds },
        { username, password, email: email ?? null, isAdmin },
      );
      const { json } = await call('POST', '/api/users/auth/login/', { json: { username, password } });
      return { token: json.token, password, id };
    },
    call,
    async anotherApi({ env: settings = {}, now } = {}) {
      const another = await serve(loadConfig({ ...fullEnv, PORT: undefined, ...settings }), now);
      return { url: another.url, call: callsTo(another.url), close: () => another.close() };
    },
    closeApi: () => api.close(),
    close: () => releasers.releaseAll(),
  };
}

function callsTo(base: string): Call {
  return async (method, path, { headers = {}, token, json, body } = {}) => {
    const response = await fetch(base + path, {
      method,
      headers: {
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        ...headers,
      },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
      ...(body === undefined ? {} : { body: new Uint8Array(Buffer.from(body)) }),
    });
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.includes('json') === true && text !== '';
    return {
      status: response.status,
      headers: response.headers,
      text,
      json: isJson ? JSON.parse(text) : undefined,
    };
  };
}
