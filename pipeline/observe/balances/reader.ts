import { metricsIn } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';
import { createRate } from '../../../infra/rate.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { pairKey } from '../../../projections/balances/queries.ts';
import type { Pair } from '../../../projections/balances/queries.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { BalancesMessage } from '../../../schemas/messages/balances.ts';
import { storable } from '../../../schemas/text.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { createLruCache } from '../../../infra/lru.ts';
import type { BlockPoint, Node } from '../../node/types.ts';
import type { Observer } from '../observer.ts';
import { createPendingRequests } from '../pending.ts';
import type { CallerRequest, Pending } from '../pending.ts';
import { readBalances } from './read.ts';
import type { BalanceReading, EntryPoint } from './read.ts';

export type BalanceRequest = CallerRequest & Pair;
type PendingRead = Pending<BalanceRequest>;

export interface BalanceReaderOptions {
  readonly node: Pick<Node, 'callMany'>;
  readonly callsPerSecond: number;
  /** The newest indexed block; null before the first. Balances are read at it, so that transfers after it can be added. */
  readonly newestBlock: () => Promise<BlockPoint | null>;
  /** Which of these pairs indexed transfers moved, up to a height, by `pairKey`; null before there are tables of it. */
  readonly movedPairs: (pairs: readonly Pair[], upTo: number) => Promise<ReadonlySet<string> | null>;
  /** `finalHeight` of the read model. */
  readonly l1Height: () => Promise<number | null>;
  readonly metrics: Registry;
}

export interface BalanceReader {
  request(request: BalanceRequest): void;
  /** Starts reading what was requested. */
  wake(): void;
}

const PAIRS_PER_CALL = 50;
/**
 * The pairs of a batch that failed are read in batches smaller by this factor, and in the end alone: one call that the node
 * cannot answer in time, or a batch that is too large for it, fails a whole batch.
 */
const SPLIT = 8;
const CONCURRENT_CALLS = 4;
/** Of these, calls for parts of failed batches or single pairs, so that a token whose calls hang cannot take all. */
const CONCURRENT_SPLIT_CALLS = 2;
/** One batch of calls with its retries; then its pairs are read at a newer block. */
const READ_TIMEOUT_MS = 15_000;
/** Calls for balances overtake those for metadata, which wait for contracts that keep the node busy for seconds. */
const PRIORITY = 1;
const RETRY_MS = 1000;
/** A request within this time of a read at the newest block is answered by that read. */
const WINDOW_MS = 1000;

/** Reads requested balances from the node, many pairs in one call, and publishes them. */
export function startBalanceReader(observer: Observer, options: BalanceReaderOptions): BalanceReader {
  const { publisher, log, signal, now } = observer;
  const metrics = createBalanceMetrics(options.metrics);
  const pending = createPendingRequests<BalanceRequest>({
    keyOf: pairKey,
    onExpired: () => metrics.reads.inc({ outcome: 'given_up' }),
    onDropped: () => metrics.reads.inc({ outcome: 'dropped' }),
  });
  const readBatch = createBatchReader(observer, options, metrics);
  /** Tokens of a pair whose single read failed: their pairs are read alone until one is answered. */
  const isolated = createLruCache<Felt, true>(10_000);
  const running = new Set<Promise<void>>();
  let runningSplit = 0;

  function logFailure(error: unknown, pairs: number): void {
    // An error that is not marked retryable needs an operator's look; the batch is retried all the same.
    const isTransient = isStoreUnavailable(error) || signal.aborted;
    log[isTransient ? 'warn' : 'error']({ err: error, pairs }, 'balances not read, retrying');
    metrics.reads.inc({ outcome: 'failed' }, pairs);
  }

  async function readAndPublish(batch: readonly PendingRead[]): Promise<BatchResult> {
    try {
      const result = await readBatch(batch);
      for (const [topic, values] of await byTopic(result.messages, options)) {
        const messages = values.map((value) => ({ key: pairKey(value), value }));
        await publisher.publish(topic, messages);
      }
      if (result.nodeError !== undefined) logFailure(result.nodeError, result.unread.length);
      return result;
    } catch (error) {
      logFailure(error, batch.length);
      return { messages: [], unread: batch };
    }
  }

  async function process(batch: readonly PendingRead[]): Promise<void> {
    const { unread, nodeError } = await readAndPublish(batch);
    const failed = new Set(unread);
    const isSplit = nodeError !== undefined && unread.length > 1 && !signal.aborted;
    const batchLimit = isSplit ? Math.ceil(unread.length / SPLIT) : undefined;
    const retryAt = isSplit ? now() : now() + RETRY_MS;
    for (const read of batch) pending.end(read, failed.has(read) ? retryAt : null, batchLimit);
    const [alone] = batch.length === 1 ? batch : [];
    if (alone === undefined) return;
    if (nodeError !== undefined) isolated.set(alone.token, true);
    else if (unread.length === 0) isolated.delete(alone.token);
  }

  observer.releasers.push('reads', async () => void (await Promise.all(running)));
  const loop = observer.loop(async () => {
    while (running.size < CONCURRENT_CALLS) {
      const minBatchLimit = runningSplit < CONCURRENT_SPLIT_CALLS ? 1 : PAIRS_PER_CALL;
      const batch = pending.take(PAIRS_PER_CALL, now(), minBatchLimit);
      const [first] = batch;
      if (first === undefined) break;
      const splitCalls = first.batchLimit < PAIRS_PER_CALL ? 1 : 0;
      runningSplit += splitCalls;
      const run = process(batch).finally(() => {
        running.delete(run);
        runningSplit -= splitCalls;
        loop.wake();
      });
      running.add(run);
    }
    metrics.waiting.set(pending.size());
    return false;
  });
  return {
    request: (request) =>
      pending.add(request, now(), isolated.get(request.token) === true ? 1 : PAIRS_PER_CALL),
    wake: () => loop.wake(),
  };
}

/** Where to publish each message: nothing is kept for ever of a pair that has no balance and that nothing moved. */
async function byTopic(
  messages: readonly BalancesMessage[],
  { movedPairs }: Pick<BalanceReaderOptions, 'movedPairs'>,
): Promise<ReadonlyMap<Topic<BalancesMessage>, BalancesMessage[]>> {
  const empty = messages.filter((message) => message.type === 'balance.refused' || message.balance === '0');
  const upTo = Math.max(...empty.map(({ block }) => block));
  const moved = empty.length === 0 ? null : await movedPairs(empty, upTo);
  const unmoved = new Set(empty.filter((message) => moved?.has(pairKey(message)) === false));
  return Map.groupBy(messages, (message) =>
    unmoved.has(message) ? topics.unmovedBalances : topics.balances,
  );
}

interface BatchResult {
  readonly messages: BalancesMessage[];
  /** To be tried again. */
  readonly unread: readonly PendingRead[];
  /** Why the node answered no call of the batch. */
  readonly nodeError?: unknown;
}

/** Returns a function that reads a batch of pairs. */
function createBatchReader(
  { now, signal }: Observer,
  { node: unpaced, callsPerSecond, newestBlock, l1Height }: BalanceReaderOptions,
  metrics: ReturnType<typeof createBalanceMetrics>,
) {
  const node = paceBatches(unpaced, callsPerSecond, signal);
  const entryPoints = createLruCache<Felt, EntryPoint>(10_000);
  const recent = createLruCache<string, { readonly at: number; readonly message: BalancesMessage }>(10_000);

  const recentMessage = (read: PendingRead, block: BlockPoint): BalancesMessage | null => {
    const last = recent.get(pairKey(read));
    if (last === undefined || now() - last.at >= WINDOW_MS || last.message.block_hash !== block.hash)
      return null;
    return { ...last.message, requested_at: read.requestedAt };
  };

  return async (batch: readonly PendingRead[]): Promise<BatchResult> => {
    const l1 = await l1Height();
    const block = await newestBlock();
    if (block === null) return { messages: [], unread: [...batch] };
    const messages = batch.flatMap((read) => recentMessage(read, block) ?? []);
    const fresh = batch.filter((read) => recentMessage(read, block) === null);
    if (fresh.length === 0) return { messages, unread: [] };
    const at = now();
    let readings: readonly BalanceReading[];
    try {
      readings = await readBalances(node, fresh, { hash: block.hash }, entryPoints);
    } catch (nodeError) {
      return { messages, unread: fresh, nodeError };
    }
    const unread: PendingRead[] = [];
    for (const [index, read] of fresh.entries()) {
      const reading = readings[index];
      metrics.reads.inc({ outcome: reading?.kind ?? 'unanswered' });
      const message = reading === undefined ? null : messageOf(read, reading, block, l1, at);
      if (message === null) {
        unread.push(read);
        continue;
      }
      recent.set(pairKey(read), { at, message });
      messages.push(message);
    }
    return { messages, unread };
  };
}

/**
 * Limits calls per second; each call of a batch counts, as node providers count them. The time limit of a batch begins after
 * its wait, which a low rate makes long.
 */
function paceBatches(
  node: Pick<Node, 'callMany'>,
  callsPerSecond: number,
  signal: AbortSignal,
): Pick<Node, 'callMany'> {
  const turn = createRate(callsPerSecond);
  return {
    async callMany(requests, at) {
      await Promise.all(requests.map(() => turn(signal)));
      const within = AbortSignal.any([signal, AbortSignal.timeout(READ_TIMEOUT_MS)]);
      return await node.callMany(requests, at, { signal: within, priority: PRIORITY });
    },
  };
}

/** Null where the node did not answer. */
function messageOf(
  { account, token, requestedAt }: PendingRead,
  reading: BalanceReading,
  block: BlockPoint,
  l1Height: number | null,
  at: number,
): BalancesMessage | null {
  const common = {
    v: 1 as const,
    account,
    token,
    block: block.height,
    block_hash: block.hash,
    observed_at: at,
    requested_at: requestedAt,
    l1_height: l1Height,
  };
  switch (reading.kind) {
    case 'balance':
      return { type: 'balance.observed', ...common, balance: reading.balance.toString() };
    case 'refused':
      return { type: 'balance.refused', ...common, reason: storable(reading.reason) };
    case 'unanswered':
      return null;
  }
}

function createBalanceMetrics(registry: Registry) {
  const { counter, gauge } = metricsIn(registry);
  return {
    reads: counter('tds_balance_reads_total', 'Balances read from the chain, by outcome', ['outcome']),
    waiting: gauge('tds_balance_reads_waiting', 'Pairs requested or being read'),
  };
}
