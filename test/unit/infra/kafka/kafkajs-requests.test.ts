import { Socket } from 'node:net';

import kafkajs from 'kafkajs';
import type { ISocketFactory } from 'kafkajs';
import ConsumerGroup from 'kafkajs/src/consumer/consumerGroup.js';
import Connection from 'kafkajs/src/network/connection.js';
import RequestQueue from 'kafkajs/src/network/requestQueue/index.js';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { endFetches } from '../../../../infra/kafka/kafkajs-requests.ts';
import { send, silent } from '../../../support/kafkajs.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const queueOf = (isConnected = (): boolean => true): RequestQueue =>
  new RequestQueue({
    maxInFlightRequests: null,
    requestTimeout: 30_000,
    enforceRequestTimeout: true,
    clientId: 'test',
    broker: 'b:1',
    logger: silent,
    isConnected,
  });

test('sets no timer for a connection without postponed requests', async () => {
  const queue = queueOf();
  const { answer, sendRequest } = send(queue, 1);
  expect(sendRequest).toHaveBeenCalledOnce();
  queue.fulfillRequest({ correlationId: 1, payload: Buffer.alloc(0), size: 0 });
  await answer;
  expect(vi.getTimerCount()).toBe(0);
});

test('sends a request that the broker has asked to postpone', () => {
  const queue = queueOf();
  queue.maybeThrottle(500);
  const { sendRequest } = send(queue, 1);
  expect(sendRequest).not.toHaveBeenCalled();
  vi.advanceTimersByTime(600);
  expect(sendRequest).toHaveBeenCalledOnce();
  expect(vi.getTimerCount()).toBe(0);
});

/** Sockets of a broker that accepts connections, but does not answer. */
const silentSockets =
  (): ISocketFactory =>
  ({ onConnect }) => {
    process.nextTick(onConnect);
    return new Socket();
  };

const connectionTo = (host: string, socketFactory = silentSockets()): Connection =>
  new Connection({
    host,
    port: 1,
    connectionTimeout: 5000,
    requestTimeout: 30_000,
    logger: silent,
    socketFactory,
  });

test.each([
  ['Fetch', 1, 30_000],
  ['Metadata', 3, 10_000],
])('closes all connections to a broker that does not answer %s within its timeout', async (_, apiKey, ms) => {
  const host = `silent-${apiKey}`;
  const [busy, idle, other] = [connectionTo(host), connectionTo(host), connectionTo('other')];
  for (const connection of [busy, idle, other]) await connection.connect();
  const { answer } = send(busy.requestQueue, 1, apiKey);
  vi.advanceTimersByTime(ms - 1000);
  expect(busy.requestQueue.inflight.size).toBe(1);
  vi.advanceTimersByTime(3000);
  // kafkajs reads the metadata again after it.
  await expect(answer).rejects.toMatchObject({ name: 'KafkaJSConnectionError' });
  await vi.waitFor(() =>
    expect([busy, idle, other].map((one) => one.isConnected())).toEqual([false, false, true]),
  );

  await expect(busy.connect()).rejects.toMatchObject({ name: 'KafkaJSConnectionError' });
  vi.advanceTimersByTime(5000);
  expect(await busy.connect()).toBe(true);
  for (const { requestQueue } of [busy, idle, other]) requestQueue.destroy();
  expect(vi.getTimerCount()).toBe(0);
});

test('connects to a broker again that did not answer before the clock was set back', async () => {
  const connection = connectionTo('set-back');
  await connection.connect();
  const { answer } = send(connection.requestQueue, 1);
  vi.advanceTimersByTime(32_000);
  await expect(answer).rejects.toMatchObject({ name: 'KafkaJSConnectionError' });
  await vi.waitFor(() => expect(connection.isConnected()).toBe(false));
  vi.setSystemTime(Date.now() - 3_600_000);
  vi.advanceTimersByTime(5000);
  expect(await connection.connect()).toBe(true);
  connection.requestQueue.destroy();
});

test('sends heartbeats to a group on after the clock was set back', async () => {
  const heartbeat = vi.fn<() => Promise<void>>(async () => {});
  const group = new ConsumerGroup({ logger: silent, instrumentationEmitter: { emit() {} } });
  Object.assign(group, { memberId: 'member', coordinator: { heartbeat } });
  vi.setSystemTime(Date.now() - 3_600_000);
  await group.heartbeat({ interval: 3000 });
  vi.advanceTimersByTime(3000);
  await group.heartbeat({ interval: 3000 });
  expect(heartbeat).toHaveBeenCalledOnce();
});

const dead = new kafkajs.KafkaJSConnectionError('Connection error: connect ECONNREFUSED');

/** A member whose coordinator, broker 1, has died; another broker names `coordinator()` in its place. */
function orphanedMember(coordinator: () => number, isConnected = () => true) {
  const heartbeats: number[] = [];
  const brokerOf = (nodeId: number) => ({
    nodeId,
    async heartbeat() {
      heartbeats.push(nodeId);
      if (nodeId === 1) throw dead;
    },
    findGroupCoordinator: async () => ({ coordinator: { nodeId: coordinator() } }),
  });
  const refreshMetadata = vi.fn<() => Promise<void>>(async () => {});
  const group = new ConsumerGroup({ logger: silent, instrumentationEmitter: { emit() {} } });
  Object.assign(group, {
    memberId: 'member',
    sessionTimeout: 12_000,
    coordinator: brokerOf(1),
    offsetManager: { coordinator: brokerOf(1) },
    cluster: {
      isConnected,
      brokerPool: { findConnectedBroker: async () => brokerOf(3) },
      findBroker: async ({ nodeId }: { nodeId: number }) => brokerOf(nodeId),
      refreshMetadata,
    },
  });
  return { group, heartbeats, refreshMetadata };
}

test('sends heartbeats, and commits, to the successor of a coordinator that has died', async () => {
  let coordinator = 1;
  const { group, heartbeats } = orphanedMember(() => coordinator);
  vi.advanceTimersByTime(3000);
  await group.heartbeat({ interval: 3000 }); // none is elected yet
  coordinator = 2;
  await group.heartbeat({ interval: 3000 });
  await group.heartbeat({ interval: 3000 });
  expect(heartbeats).toEqual([1, 1, 2]);
  expect(group.offsetManager?.coordinator.nodeId).toBe(2);
});

test('reports that no heartbeat reaches a coordinator once the session is over, and other errors at once', async () => {
  const { group } = orphanedMember(() => 1);
  vi.advanceTimersByTime(12_000);
  await group.heartbeat({ interval: 3000 });
  vi.advanceTimersByTime(1);
  await expect(group.heartbeat({ interval: 3000 })).rejects.toBe(dead);

  const rebalancing = new kafkajs.KafkaJSError('The group is rebalancing');
  Object.assign(group, { coordinator: { nodeId: 1, heartbeat: () => Promise.reject(rebalancing) } });
  await expect(group.heartbeat({ interval: 3000 })).rejects.toBe(rebalancing);
});

test('fetches on from the other brokers while one cannot be reached, and looks for new leaders', async () => {
  let isConnected = true;
  const { group, refreshMetadata } = orphanedMember(
    () => 1,
    () => isConnected,
  );
  const recovered = group.recoverFromFetch(dead);
  await vi.advanceTimersByTimeAsync(200);
  await recovered;
  expect(refreshMetadata).toHaveBeenCalledOnce();
  const other = new kafkajs.KafkaJSError('another error');
  await expect(group.recoverFromFetch(other)).rejects.toBe(other);

  // kafkajs would look for a broker longer than a stop may take.
  isConnected = false;
  await expect(group.recoverFromFetch(dead)).rejects.toBe(dead);
  vi.advanceTimersByTime(3000);
  await expect(group.heartbeat({ interval: 3000 })).rejects.toBe(dead);
});

test('looks for timed out requests of all connections with one timer, until they are closed', async () => {
  let isConnected = true;
  const [first, second] = [queueOf(), queueOf(() => isConnected)];
  for (const queue of [first, second]) queue.scheduleRequestTimeoutCheck();
  expect(vi.getTimerCount()).toBe(1);

  first.destroy();
  expect(vi.getTimerCount()).toBe(1);
  isConnected = false;
  vi.advanceTimersByTime(1001);
  expect(vi.getTimerCount()).toBe(0);
});

test('ends the fetches of the consumer that stops, and no other requests', async () => {
  const [stopping, other] = [silentSockets(), silentSockets()];
  const fetching = connectionTo('ended', stopping);
  const heartbeating = connectionTo('ended', stopping);
  const fetchingToo = connectionTo('ended', other);
  for (const connection of [fetching, heartbeating, fetchingToo]) await connection.connect();
  const { answer } = send(fetching.requestQueue, 1);
  send(heartbeating.requestQueue, 1, 12);
  send(fetchingToo.requestQueue, 1);
  endFetches(stopping);
  const stopped: unknown = await answer.catch((error: unknown) => error);
  expect(stopped).toMatchObject({ name: 'KafkaJSConnectionError' });
  expect([fetching, heartbeating, fetchingToo].map((one) => one.isConnected())).toEqual([false, true, true]);
  for (const { requestQueue } of [fetching, heartbeating, fetchingToo]) requestQueue.destroy();

  const { group, refreshMetadata } = orphanedMember(() => 1);
  await expect(group.recoverFromFetch(stopped as Error)).rejects.toBe(stopped);
  expect(refreshMetadata).not.toHaveBeenCalled();
});
