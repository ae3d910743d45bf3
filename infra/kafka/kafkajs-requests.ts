import kafkajs from 'kafkajs';
import type { ISocketFactory } from 'kafkajs';
import ConsumerGroup from 'kafkajs/src/consumer/consumerGroup.js';
import Connection from 'kafkajs/src/network/connection.js';
import RequestQueue from 'kafkajs/src/network/requestQueue/index.js';
import type { InflightRequest } from 'kafkajs/src/network/requestQueue/index.js';

import { errorCode } from '../error-code.ts';
import { sleep } from '../lifecycle.ts';

/** Interval of checking for requests that are postponed because others are in flight. */
const SPACING_MS = 10;
/** Interval of checking for requests that have timed out. */
const CHECK_MS = 1000;
/** Keys of requests that a broker answers from its memory: Metadata, FindCoordinator, Heartbeat, ApiVersions. */
const PROMPT: ReadonlySet<number> = new Set([3, 10, 12, 18]);
const PROMPT_MS = 10_000;
/** Key of the request Fetch. */
const FETCH = 1;
/** Between two fetches from a broker that cannot be reached. */
const UNREACHABLE_MS = 200;
/** Code of the error of a fetch whose consumer stops. */
const STOPS = 'CONSUMER_STOPS';
/** No connection to a broker is opened for so long after a timeout. */
const AVOID_MS = 5000;

/**
 * kafkajs (2.2.4) wakes a process a thousand times a second for each of its connections, also while nothing is sent: it looks
 * for postponed requests by a timer that sets itself again with a negative delay, and for timed out ones every 100 ms.
 */
RequestQueue.prototype.scheduleCheckPendingRequests = function () {
  if (this.pending.length === 0 || this.throttleCheckTimeoutId !== null) return;
  const delayMs = Math.max(this.throttledUntil - Date.now(), SPACING_MS);
  this.throttleCheckTimeoutId = setTimeout(() => {
    this.throttleCheckTimeoutId = null;
    this.checkPendingRequests();
  }, delayMs);
};

/** The connection of each queue. */
const connections = new WeakMap<RequestQueue, Connection>();
/** By broker, when it last left a request unanswered, on the clock of `performance.now()`: the machine's may be set back. */
const unanswered = new Map<string, number>();

const { connect } = Connection.prototype;
Connection.prototype.connect = async function () {
  const { broker } = this.requestQueue;
  if (!this.isConnected() && performance.now() - (unanswered.get(broker) ?? -Infinity) < AVOID_MS)
    throw new kafkajs.KafkaJSConnectionError('a request timed out a moment ago', { broker });
  connections.set(this.requestQueue, this);
  return await connect.call(this);
};

const { heartbeat, recoverFromFetch } = ConsumerGroup.prototype;
/**
 * After the clock was set back, kafkajs (2.2.4) would send none until it has caught up: the group goes on without the member.
 *
 * kafkajs would also keep sending heartbeats to a coordinator that has died, and stop fetching for longer after each failure, until
 * it joins the group again (measured: up to 7 s, for 35 s and more). Its successor knows the members; until there is one, the
 * member fetches on for as long as its session lasts.
 */
ConsumerGroup.prototype.heartbeat = async function (options) {
  this.lastRequest = Math.min(this.lastRequest, Date.now());
  try {
    await heartbeat.call(this, options);
  } catch (error) {
    if (!(error instanceof kafkajs.KafkaJSConnectionError && this.cluster.isConnected())) throw error;
    const hasSuccessor = await followCoordinator(this).catch(() => false);
    if (!hasSuccessor && Date.now() - this.lastRequest > this.sessionTimeout) throw error;
  }
};

/**
 * While one broker cannot be reached, kafkajs would end the fetches from all, and pause for longer each time. Other brokers get its
 * partitions (measured: read 7 s after the broker's death was noticed, and within a second through this). A consumer that stops
 * must not continue: with the next heartbeat, kafkajs might join the group again.
 */
ConsumerGroup.prototype.recoverFromFetch = async function (error) {
  const isDead = error instanceof kafkajs.KafkaJSConnectionError && errorCode(error) !== STOPS;
  if (!isDead || !this.cluster.isConnected()) return await recoverFromFetch.call(this, error);
  await sleep(UNREACHABLE_MS);
  await this.cluster.refreshMetadata();
};

/** Turns to the coordinator that another broker names; false if that is still the same one. */
async function followCoordinator(group: ConsumerGroup): Promise<boolean> {
  const { groupId, cluster } = group;
  const broker = await cluster.brokerPool.findConnectedBroker();
  const { coordinator: named } = await broker.findGroupCoordinator({ groupId, coordinatorType: 0 });
  if (named.nodeId === group.coordinator?.nodeId) return false;
  group.coordinator = await cluster.findBroker(named);
  if (group.offsetManager !== null) group.offsetManager.coordinator = group.coordinator;
  return true;
}

/** Queues of open connections. One timer serves them all, so that a process wakes once a second, not once for each. */
const open = new Set<RequestQueue>();
let looking: NodeJS.Timeout | undefined;

RequestQueue.prototype.scheduleRequestTimeoutCheck = function () {
  if (!this.enforceRequestTimeout) return;
  open.add(this);
  // While this process was busy, the answer may have arrived: Node.js runs timers, then reads sockets, then immediates.
  looking ??= setInterval(() => setImmediate(failTimedOut), CHECK_MS);
};

RequestQueue.prototype.destroy = function () {
  open.delete(this);
  if (open.size === 0) {
    clearInterval(looking);
    looking = undefined;
  }
  clearTimeout(this.throttleCheckTimeoutId ?? undefined);
  this.throttleCheckTimeoutId = null;
};

/**
 * Closes the connections to a broker that has left a request unanswered. kafkajs would only fail the request, and keep asking a
 * broker that has frozen or vanished, even for the new leaders of its partitions. After a connection error it asks another broker:
 * a frozen one would accept a new connection, which is refused here for `AVOID_MS`.
 */
function failTimedOut(): void {
  const [now, at] = [Date.now(), performance.now()];
  for (const { broker, inflight } of open) {
    // A broker answers the requests of a connection in their order: the later ones may wait for a member that joins a group.
    const [oldest] = inflight.values();
    if (oldest !== undefined && now - oldest.sentAt > timeoutOf(oldest)) unanswered.set(broker, at);
  }
  for (const queue of open) {
    if (unanswered.get(queue.broker) === at)
      connections.get(queue)?.socket.destroy(new Error('a request timed out'));
    if (!queue.isConnected()) queue.destroy();
  }
}

const timeoutOf = ({ entry, requestTimeout }: InflightRequest): number =>
  PROMPT.has(entry.apiKey) ? PROMPT_MS : requestTimeout;

/**
 * Ends the fetches of a consumer that stops. kafkajs (2.2.4) would wait for their answers, for which a broker waits until there
 * are messages or `maxWaitTimeInMs` has passed.
 *
 * @param sockets the socket factory of this consumer alone
 */
export function endFetches(sockets: ISocketFactory): void {
  for (const queue of open) {
    const connection = connections.get(queue);
    if (connection?.socketFactory !== sockets) continue;
    const isFetching = [...queue.inflight.values()].some(({ entry }) => entry.apiKey === FETCH);
    if (isFetching)
      connection.socket.destroy(Object.assign(new Error('the consumer stops'), { code: STOPS }));
  }
}
