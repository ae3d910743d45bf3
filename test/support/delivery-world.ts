import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

import { Registry } from 'prom-client';

import type { Clock } from '../../infra/clock.ts';
import { sleep } from '../../infra/lifecycle.ts';
import { parseNetwork } from '../../infra/networks.ts';
import { inTransaction } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { createSealing } from '../../infra/sealing.ts';
import type { Sealing } from '../../infra/sealing.ts';
import { createDispatcher } from '../../pipeline/dispatch/dispatcher.ts';
import type { Dispatcher } from '../../pipeline/dispatch/dispatcher.ts';
import { insertDeliveries } from '../../pipeline/dispatch/deliveries.ts';
import { findDelivery } from '../../pipeline/dispatch/queries.ts';
import type { Delivery } from '../../pipeline/dispatch/queries.ts';
import type { DispatchDeps } from '../../pipeline/dispatch/deps.ts';
import { createDispatchMetrics } from '../../pipeline/dispatch/metrics.ts';
import { runRequests } from '../../pipeline/dispatch/requests.ts';
import { createSend } from '../../pipeline/dispatch/send/attempt.ts';
import { startSender } from '../../pipeline/dispatch/send/sender.ts';
import type { SenderSettings } from '../../pipeline/dispatch/send/sender.ts';
import { startCleanup } from '../../pipeline/dispatch/cleanup.ts';
import type { QuotaDeps } from '../../pipeline/dispatch/quota.ts';
import { startQuota } from '../../pipeline/dispatch/quota.ts';
import { startMaintenance } from '../../pipeline/dispatch/maintenance.ts';
import { createEgress } from '../../pipeline/egress/egress.ts';
import { createLogReaderRetry } from '../../pipeline/log-reading.ts';
import { runPostgresProjection } from '../../projections/engine/run/postgres-runner.ts';
import type { ProjectionRun } from '../../projections/engine/run/lifetime.ts';
import { servedBuilds, servedSchema } from '../../projections/served.ts';
import { secretOf } from '../../projections/webhooks/queries.ts';
import { webhooks } from '../../projections/webhooks/projector.ts';
import type { WebhookCommand } from '../../projections/webhooks/decider.ts';
import type { CommandOf } from '../../schemas/messages/commands.ts';
import { topics } from '../../schemas/topics.ts';
import { projectionWorld, until } from './projection-world.ts';
import type { ProjectionWorld } from './projection-world.ts';

/** The retry delays of the contract, in milliseconds. */
export const DELAYS_MS = [30, 300, 1800, 7200, 43_200].map((seconds) => seconds * 1000);
const TIMEOUT_MS = 400;
/** The lease of an attempt expires after this time. */
export const LEASE_MS = TIMEOUT_MS + 20_000;
/** Owner of the webhooks, an id that the first command in the log could have created. */
const OWNER = 1;
/** Owner of the webhook that shows which messages were matched. */
const NEIGHBOUR = 2;
const START = 1_700_000_000_000;
/** How far `now` of the dispatchers is behind their wall time, as after a suspension of the machine. */
const SUSPENDED_MS = 3_600_000;

/** A request as received. */
export interface Received {
  readonly id: string;
  readonly attempt: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** Time on the clock of the test. */
  readonly at: number;
}
export type Answering = (received: Received, response: ServerResponse) => void;

export interface Receiver {
  readonly url: string;
  readonly received: Received[];
  /** From the next request on. */
  answer: Answering;
}

export interface Station {
  /** Stops; requests in progress may finish for a moment. */
  stop(): Promise<void>;
}

const NO_QUOTA = { perWebhook: 1e9, perUser: 1e9 };

/** The delivery of webhooks on real stores, log, projector and sockets, with a clock that the test controls. */
export interface DeliveryWorld extends Pick<ProjectionWorld, 'pool' | 'env' | 'kafka' | 'log'> {
  readonly schema: string;
  readonly sealing: Sealing;
  readonly clock: Clock & { advance(ms: number): void; set(at: number): void };
  readonly failures: unknown[];
  readonly webhookSchema: () => Promise<string | null>;
  /** A receiver on its own loopback address, which answers 200 by default. */
  receiver(answer?: Answering, host?: string): Promise<Receiver>;
  /** Appends a command, waits until it is decided, and returns its result. */
  command<T extends WebhookCommand['type'] | 'user.disable'>(
    type: T,
    body: Omit<CommandOf<T>['body'], 'user_id'> & { readonly user_id?: number },
    id?: string,
  ): Promise<Record<string, unknown>>;
  webhook(url: string, owner?: number): Promise<{ readonly id: number; readonly secret: string }>;
  sealed(secret: string, owner?: number): string;
  /** Creates deliveries that are due now, and returns their ids. */
  deliver(webhookId: number, count?: number): Promise<string[]>;
  delivery(webhookId: number, id: string): Promise<Delivery>;
  /** Resolves when every delivery that is due now has been started. */
  looked(): Promise<void>;
  sender(options?: { readonly pool?: Pool; readonly clock?: Clock } & Partial<SenderSettings>): Station;
  /** A whole dispatcher, which is not started. */
  dispatcher(options: Pick<DispatchDeps, 'kafka'> & Partial<Pick<DispatchDeps, 'pool'>>): Dispatcher;
  /** Everything except the matchers. */
  station(options?: Partial<SenderSettings>, limits?: QuotaDeps['settings']): Promise<Station>;
  /** Deletes all deliveries and resets the clock. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

export const newSecret = (): string => `whsec_${randomBytes(32).toString('base64')}`;

export async function deliveryWorld(): Promise<DeliveryWorld> {
  const world = await projectionWorld();
  const { pool, kafka, log } = world;
  const publisher = kafka.publisher();
  const sealing = createSealing(randomBytes(32));
  const network = parseNetwork('127.0.0.0/8');
  const egress = createEgress({ allowNetworks: network === null ? [] : [network], ownPorts: [] });
  const failures: unknown[] = [];
  const stations = new Set<Station>();
  const closing: (() => Promise<unknown>)[] = [];
  const projecting: ProjectionRun = await runPostgresProjection({
    kafka,
    pool,
    projection: webhooks,
    groupId: 'webhooks',
    log,
    metrics: world.metrics,
  });
  const webhookSchema = async (): Promise<string | null> => await servedSchema(pool, 'webhooks');
  await until(async () => (await webhookSchema()) !== null);
  const schema = (await webhookSchema()) ?? '';

  let time = START;
  const clock: DeliveryWorld['clock'] = {
    now: () => time,
    wallTime: () => time,
    // Waits end soon: only the time determines what is due.
    sleep: async (ms, signal) => await sleep(Math.min(ms, 5), signal),
    turn: async () => await sleep(0),
    random: () => 0,
    advance: (ms) => (time += ms),
    set: (at) => (time = at),
  };
  const suspended: Clock = { ...clock, now: () => time - SUSPENDED_MS };
  const onFatal = (error: unknown): void => void failures.push(error);
  const started = (stop: () => Promise<void>): Station => {
    const station: Station = {
      async stop() {
        stations.delete(station);
        await stop();
      },
    };
    stations.add(station);
    return station;
  };
  let canary: { readonly id: number; readonly receiver: Receiver } | null = null;

  const own: DeliveryWorld = {
    ...world,
    schema,
    sealing,
    clock,
    failures,
    webhookSchema,
    async receiver(answer = (_, response) => void response.end(), host = '127.0.0.2') {
      const received: Received[] = [];
      const server = createServer((request, response) => {
        const chunks: Buffer[] = [];
        request.on('data', (chunk: Buffer) => chunks.push(chunk));
        request.on('error', () => {});
        request.on('end', () => {
          const { headers } = request;
          const one = {
            id: String(headers['x-vendor-delivery']),
            attempt: Number(headers['x-vendor-attempt']),
            headers,
            body: Buffer.concat(chunks).toString(),
            at: time,
          };
          received.push(one);
          receiver.answer(one, response);
        });
      });
      server.listen(0, host);
      await once(server, 'listening');
      closing.push(async () => {
        server.closeAllConnections();
        server.close();
        await once(server, 'close');
      });
      const { port } = server.address() as AddressInfo;
      const receiver: Receiver = { url: `http://${host}:${port}/hook`, received, answer };
      return receiver;
    },
    async command(type, body, id = randomUUID()) {
      const value = {
        v: 1,
        id,
        type,
        issued_at: time,
        actor: `user:${OWNER}`,
        request_hash: null,
        body: { user_id: OWNER, ...body },
      } as unknown as WebhookCommand;
      await publisher.publish(topics.commands, [{ value }]);
      let result: Record<string, unknown> = {};
      await until(async () => {
        const { rows } = await pool.query<{ accepted: boolean; result: Record<string, unknown> }>(
          `SELECT accepted, result FROM ${schema}.command_outcomes WHERE id = $1`,
          [id],
        );
        if (rows[0]?.accepted === false) throw new Error(`refused: ${JSON.stringify(rows[0].result)}`);
        result = rows[0]?.result ?? {};
        return rows.length > 0;
      });
      return result;
    },
    async webhook(url, owner = OWNER) {
      const secret = newSecret();
      const made = await own.command('webhook.create', {
        user_id: owner,
        name: 'mine',
        url,
        events: ['transfer.created'],
        subscriptions: [],
        secret: own.sealed(secret, owner),
        from_block: -1,
        most: 100_000,
      });
      return { id: Number(made['id']), secret };
    },
    sealed: (secret, owner = OWNER) => sealing.seal(secret, secretOf(owner)),
    async deliver(webhookId, count = 1) {
      const made = Array.from({ length: count }, () => ({
        id: randomUUID(),
        webhookId,
        event: 'transfer.created',
        body: JSON.stringify({
          event: 'transfer.created',
          created_at: new Date(time).toISOString(),
          data: { salt: randomUUID(), name: 'é\u2603' },
        }),
        createdAt: time,
      }));
      await inTransaction(pool, async (tx) => await insertDeliveries(tx, made));
      return made.map(({ id }) => id);
    },
    async delivery(webhookId, id) {
      const delivery = await findDelivery(pool, { id: webhookId, status: 'active' }, id);
      if (delivery === null) throw new Error(`there is no delivery ${id}`);
      return delivery;
    },
    async looked() {
      if (canary === null) {
        const receiver = await own.receiver();
        canary = { receiver, id: (await own.webhook(receiver.url, NEIGHBOUR)).id };
      }
      // When the endpoint that waited last gets a delivery, every earlier one has got one.
      const { id, receiver } = canary;
      for (let round = 0; round < 2; round += 1) {
        const [sent = ''] = await own.deliver(id);
        await until(async () => receiver.received.some((one) => one.id === sent));
        await until(async () => (await own.delivery(id, sent)).status === 'success');
      }
    },
    sender({ pool: through = pool, clock: senderClock = suspended, ...settings } = {}) {
      const stopping = new AbortController();
      const sender = startSender(
        {
          pool: through,
          schema: webhookSchema,
          send: createSend({
            egress,
            sealing,
            clock: senderClock,
            log,
            timeoutMs: settings.timeoutMs ?? TIMEOUT_MS,
          }),
          clock: senderClock,
          retryWhileUnavailable: createLogReaderRetry('test', log, stopping.signal),
          metrics: createDispatchMetrics(new Registry()),
          settings: {
            delaysMs: DELAYS_MS,
            timeoutMs: TIMEOUT_MS,
            concurrency: 512,
            endpointConcurrency: 32,
            deadLimit: 10,
            ...settings,
          },
        },
        onFatal,
      );
      return started(async () => {
        stopping.abort();
        await sender.stop();
      });
    },
    dispatcher(deps) {
      const dispatcher = createDispatcher({
        config: {
          webhookRetryDelays: DELAYS_MS.map((ms) => ms / 1000),
          webhookTimeoutMs: 60_000,
          webhookDisableAfter: 10,
          webhookConcurrency: 8,
          webhookEndpointConcurrency: 8,
          webhookHistoryDays: 30,
          webhookMaxDeliveries: NO_QUOTA.perWebhook,
          webhookMaxDeliveriesPerUser: NO_QUOTA.perUser,
        },
        databaseUrl: world.env['DATABASE_URL'] ?? '',
        pool,
        ...deps,
        publisher,
        clickhouse: world.clickhouse,
        egress,
        sealing,
        webhooks: webhookSchema,
        readServed: async (read) => await read(await servedBuilds(pool)),
        clock: suspended,
        log,
        metrics: new Registry(),
      });
      started(() => dispatcher.stop());
      return dispatcher;
    },
    async station(settings = {}, limits = NO_QUOTA) {
      const stopping = new AbortController();
      const sender = own.sender(settings);
      const retryWhileUnavailable = createLogReaderRetry('test', log, stopping.signal);
      const shared = { pool, webhooks: webhookSchema, clock: suspended, retryWhileUnavailable };
      const metrics = createDispatchMetrics(new Registry());
      const upkeep = startMaintenance(
        {
          ...shared,
          publisher,
          log,
          metrics,
          onDue: () => {},
          settings: { deadLimit: 10 },
        },
        onFatal,
      );
      const cleanup = startCleanup({ ...shared, log, metrics, settings: { historyDays: 30 } }, onFatal);
      const quota = startQuota({ ...shared, publisher, log, metrics, settings: limits }, onFatal);
      const requests = await runRequests({ ...shared, kafka, onDue: () => {} }, onFatal);
      return started(async () => {
        stopping.abort();
        const all = [sender, upkeep, cleanup, quota, requests];
        await Promise.all(all.map(async (one) => await one.stop()));
      });
    },
    async reset() {
      for (const station of stations) await station.stop();
      await pool.query('TRUNCATE tds.webhook_deliveries, tds.webhook_endpoints, tds.webhook_deletions');
      time = START;
    },
    async close() {
      for (const station of stations) await station.stop();
      await egress.close();
      await Promise.all(closing.map(async (end) => await end()));
      await projecting.stop();
      await publisher.close();
      await world.close();
    },
  };
  return own;
}
