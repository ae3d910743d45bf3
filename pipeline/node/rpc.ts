import PQueue from 'p-queue';

import type { Clock } from '../../infra/clock.ts';
import { jsonOf } from '../../infra/json.ts';
import { retry } from '../../infra/retry.ts';
import { AppError, isRetryable } from '../../schemas/errors.ts';
import { createHttpClient, retryAfterMs } from '../http.ts';
import type { HttpAnswer } from '../http.ts';
import { RpcError, invalidAnswer, isRpcError, rpcCodes } from './errors.ts';
import { createMask, excerptOf } from './excerpt.ts';
import type { Mask } from './excerpt.ts';
import type { NodeMetrics } from './metrics.ts';
import type { CallOptions, CallOutcome } from './types.ts';

export interface RpcOptions {
  readonly url: string;
  /** For one whole exchange: connecting, waiting and reading. */
  readonly timeoutMs: number;
  readonly maxConcurrent: number;
  /** Attempts per call before a retryable error is thrown; callers retry at their own pace. */
  readonly attempts?: number;
  readonly maxAnswerBytes?: number;
  readonly clock: Clock;
  readonly metrics: NodeMetrics;
}

/** By name: nodes differ in the number of positional parameters (`response_flags` came with 0.10.1), not in the names. */
export type RpcParams = Readonly<Record<string, unknown>>;

export interface RpcCall<T> {
  readonly method: string;
  readonly params: RpcParams;
  /** Throws if the answer does not follow the specification. */
  readonly parse: (result: unknown, bytes: number) => T;
}

export interface Rpc {
  call<T>(call: RpcCall<T>, options?: CallOptions): Promise<T>;
  /**
   * One HTTP request; one for each call to a node that refuses batches. An error of one call is its outcome; one of the
   * exchange, or a server fault of every call, is thrown.
   */
  batch<T>(calls: readonly RpcCall<T>[], options?: CallOptions): Promise<CallOutcome<T>[]>;
  close(): Promise<void>;
}

const PREFIX = 'Starknet node unreachable: ';
const BACKOFF = { baseMs: 200, maxMs: 3000 };
/** Upper bound of the delay that a node may request with Retry-After. */
const MAX_RETRY_AFTER_MS = 10_000;
/** A batch is tried again so long after the node has refused one: the refusal may have been of its size, or of another node. */
const BATCH_REFUSED_MS = 600_000;
const BATCH_REFUSALS = [
  rpcCodes.invalidRequest,
  rpcCodes.parseError,
  rpcCodes.batchesNotSupported,
  rpcCodes.batchTooLarge,
  rpcCodes.batchAnswerTooLarge,
];

/** HTTP requests to the node, with a time-out per exchange, a size limit, and retries with backoff and jitter. */
function createExchange(options: RpcOptions) {
  const { url, timeoutMs, maxConcurrent, maxAnswerBytes = 256_000_000, clock, metrics } = options;
  const http = createHttpClient({
    timeoutMs,
    maxAnswerBytes,
    maxConcurrent,
    clock,
    unreachable: 'NODE_UNREACHABLE',
    invalid: 'NODE_ANSWER_INVALID',
    errorPrefix: PREFIX,
  });
  const queue = new PQueue({ concurrency: maxConcurrent });
  const mask = createMask(url);
  const describe = (body: Buffer): string => {
    const shown = excerptOf(body, mask);
    return shown === '' ? '' : `; the answer begins with ${shown}`;
  };
  const attempt = async <T>(
    name: string,
    body: unknown,
    read: (answer: JsonAnswer) => T,
    signal: AbortSignal | undefined,
  ): Promise<T> => {
    const end = metrics.seconds.startTimer({ method: name });
    try {
      const json = JSON.stringify(body);
      const isAnswer = Array.isArray(body) ? isRefusedByPlan : undefined;
      const found = await http.exchange(url, { json, signal, isAnswer, describe });
      const answer = withExcerpt(
        () => read(parseAnswer(found, mask)),
        () => (holdsResults(jsonOf(found.body)) ? '' : describe(found.body)),
      );
      end({ outcome: 'ok' });
      return answer;
    } catch (error) {
      end({ outcome: outcomeOf(error) });
      throw error;
    }
  };

  const withRetries = async <T>(
    name: string,
    body: unknown,
    read: (answer: JsonAnswer) => T,
    { signal, priority = 0 }: CallOptions,
  ): Promise<T> => {
    const work = async (): Promise<T> => {
      if (signal?.aborted === true)
        throw new AppError('NODE_UNREACHABLE', `${PREFIX}call aborted`, { cause: signal.reason });
      return await queue.add(() => attempt(name, body, read, signal), { priority });
    };
    return await retry(work, {
      ...BACKOFF,
      maxAttempts: options.attempts ?? 5,
      minDelayMs: (error) => Math.min(retryAfterMs(error) ?? 0, MAX_RETRY_AFTER_MS),
      isRetryable: (error) => isRetryable(error) && signal?.aborted !== true,
      onRetry: () => metrics.retries.inc({ method: name }),
      // The signal ends the wait; the next attempt then throws an AppError instead of the signal's reason.
      clock: { ...clock, sleep: (ms) => clock.sleep(ms, signal) },
    });
  };

  return { withRetries, close: () => http.close() };
}

/** JSON-RPC 2.0 over HTTP. */
export function createRpc(options: RpcOptions): Rpc {
  const { clock } = options;
  const { withRetries, close } = createExchange(options);
  let nextId = 1;
  /** When batches may be sent, by the clock: not for a time after the node has refused one. */
  let batchesFrom = -Infinity;

  const rpc: Rpc = {
    async call({ method, params, parse }, callOptions = {}) {
      const id = nextId++;
      return await withRetries(
        method,
        envelope(id, method, params),
        ({ json, bytes }) => {
          const outcome = readEnvelope(method, json, id);
          if (!outcome.ok) throw outcome.error;
          return parse(outcome.value, bytes);
        },
        callOptions,
      );
    },
    async batch(calls, callOptions = {}) {
      if (calls.length > 1 && clock.now() >= batchesFrom) {
        const firstId = nextId;
        nextId += calls.length;
        const outcomes = await withRetries(
          `${calls[0]?.method ?? ''}[]`,
          calls.map(({ method, params }, index) => envelope(firstId + index, method, params)),
          ({ json, bytes }) => readBatch(calls, firstId, json, bytes),
          callOptions,
        );
        if (outcomes !== null) return outcomes;
        batchesFrom = clock.now() + BATCH_REFUSED_MS;
      }
      return assertAnswered(await Promise.all(calls.map((each) => settled(rpc.call(each, callOptions)))));
    },
    close,
  };
  return rpc;
}

async function settled<T>(call: Promise<T>): Promise<CallOutcome<T>> {
  try {
    return { ok: true, value: await call };
  } catch (error) {
    if (error instanceof RpcError) return { ok: false, error };
    throw error;
  }
}

interface JsonAnswer {
  readonly json: unknown;
  readonly bytes: number;
}

/** Adds the beginning of the answer to an error about it. A JSON-RPC error of the node stays as it is. */
function withExcerpt<T>(read: () => T, excerpt: () => string): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof AppError) || error instanceof RpcError) throw error;
    const { code, message, retryable, details } = error;
    throw new AppError(code, message + excerpt(), { retryable, details });
  }
}

function parseAnswer({ status, body }: HttpAnswer, mask: Mask): JsonAnswer {
  const json = withMaskedErrors(jsonOf(body), mask);
  // The body of a gateway's error may be JSON as well.
  if (status >= 300 && !isFromNode(json)) throw new AppError('NODE_UNREACHABLE', `${PREFIX}HTTP ${status}`);
  if (json === undefined) throw invalidAnswer('the answer is not valid JSON');
  return { json, bytes: body.length };
}

/** Masks the texts of JSON-RPC errors: they go to logs, alarms and the API. */
function withMaskedErrors(json: unknown, mask: Mask): unknown {
  if (Array.isArray(json)) return json.map((item: unknown) => withMaskedErrors(item, mask));
  if (!isObject(json) || !isObject(json['error'])) return json;
  const error: unknown = JSON.parse(JSON.stringify(json['error']), (_key, value: unknown) =>
    typeof value === 'string' ? mask(value) : value,
  );
  return { ...json, error };
}

/** dRPC answers with HTTP 500 and a list that may be shorter than the batch. */
function isRefusedByPlan(body: Buffer): boolean {
  return isTooLargeForPlan(jsonOf(body));
}

function isTooLargeForPlan(json: unknown): boolean {
  const items: readonly unknown[] = Array.isArray(json) ? json : [json];
  return items.length > 0 && items.every((item) => codeOf(item) === rpcCodes.batchTooLargeForPlan);
}

function codeOf(json: unknown): unknown {
  return isObject(json) && isObject(json['error']) ? json['error']['code'] : undefined;
}

/** An error about a result names its field. */
function holdsResults(json: unknown): boolean {
  return Array.isArray(json) || (isObject(json) && json['result'] !== undefined);
}

/** True for a batch and for a JSON-RPC error. */
function isFromNode(json: unknown): boolean {
  if (Array.isArray(json)) return true;
  return Number.isInteger(codeOf(json));
}

/** null: the node refuses batches. */
function readBatch<T>(
  calls: readonly RpcCall<T>[],
  firstId: number,
  json: unknown,
  bytes: number,
): CallOutcome<T>[] | null {
  if (isTooLargeForPlan(json)) return null;
  if (!Array.isArray(json)) {
    const refusal = readEnvelope(`${calls[0]?.method ?? ''}[]`, json, null);
    if (refusal.ok) throw invalidAnswer('the answer to a batch is a single result');
    if (isRpcError(refusal.error, ...BATCH_REFUSALS)) return null;
    throw refusal.error;
  }
  const byId = new Map<unknown, unknown>(
    json.map((item: unknown) => [isObject(item) ? item['id'] : null, item]),
  );
  const share = Math.ceil(bytes / calls.length);
  const outcomes = calls.map(({ method, parse }, index): CallOutcome<T> => {
    const id = firstId + index;
    if (!byId.has(id)) throw invalidAnswer(`the answer to a batch lacks call ${index} (${method})`);
    const outcome = readEnvelope(method, byId.get(id), id);
    return outcome.ok ? { ok: true, value: parse(outcome.value, share) } : outcome;
  });
  return assertAnswered(outcomes);
}

/** Throws where the node failed to answer any call: the whole batch is retried. */
function assertAnswered<T>(outcomes: CallOutcome<T>[]): CallOutcome<T>[] {
  const faults = outcomes.flatMap((outcome) =>
    outcome.ok || !isRetryable(outcome.error) ? [] : [outcome.error],
  );
  if (faults[0] !== undefined && faults.length === outcomes.length) throw faults[0];
  return outcomes;
}

/** With `id` null, an error without an id is accepted: a refused batch has none. */
function readEnvelope(
  method: string,
  json: unknown,
  id: number | null,
): { ok: true; value: unknown } | { ok: false; error: RpcError } {
  if (!isObject(json)) throw invalidAnswer(`${method}: the answer is not a JSON-RPC object`);
  const error = json['error'];
  if (isObject(error)) {
    const { code, message, data } = error;
    if (typeof code !== 'number' || !Number.isInteger(code))
      throw invalidAnswer(`${method}: the error has no code`);
    return { ok: false, error: new RpcError(method, code, typeof message === 'string' ? message : '', data) };
  }
  if (!('result' in json) || json['result'] === undefined) throw invalidAnswer(`${method}: no result`);
  if (id !== null && json['id'] !== id) throw invalidAnswer(`${method}: the answer is for another call`);
  return { ok: true, value: json['result'] };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function outcomeOf(error: unknown): string {
  if (error instanceof RpcError) return String(error.rpcCode);
  return error instanceof AppError ? error.code : 'bug';
}

/** Without parameters, sends an empty list, which every node accepts. */
function envelope(id: number, method: string, params: RpcParams): object {
  return { jsonrpc: '2.0', id, method, params: Object.keys(params).length === 0 ? [] : params };
}
