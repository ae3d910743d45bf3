import PQueue from 'p-queue';
import { Agent, request } from 'undici';

import { AppError, isRetryable } from '../../schemas/errors.ts';
import { RpcError, invalidAnswer } from './errors.ts';
import type { NodeMetrics } from './metrics.ts';
import type { CallOptions, Outcome } from './types.ts';

export interface RpcOptions {
  readonly url: string;
  /** For one whole exchange: connecting, waiting and reading. */
  readonly timeoutMs: number;
  readonly maxConcurrent: number;
  /** Attempts in all before a retryable error is handed on; the callers go on asking at their own pace. */
  readonly attempts?: number;
  readonly maxAnswerBytes?: number;
  readonly sleep: (ms: number, signal?: AbortSignal) => Promise<void>;
  readonly now: () => number;
  readonly random: () => number;
  readonly metrics: NodeMetrics;
}

/** By name: nodes differ in how many positions a method has (`response_flags` came with 0.10.1), not in the names. */
export type RpcParams = Readonly<Record<string, unknown>>;

export interface RpcCall<T> {
  readonly method: string;
  readonly params: RpcParams;
  /** Border parser; throws when the answer is not the specification. */
  readonly parse: (result: unknown, bytes: number) => T;
}

export interface Rpc {
  call<T>(call: RpcCall<T>, options?: CallOptions): Promise<T>;
  /** One HTTP request. An error of one call is its outcome; an error of the exchange is thrown. */
  batch<T>(calls: readonly RpcCall<T>[], options?: CallOptions): Promise<Outcome<T>[]>;
  close(): Promise<void>;
}

const BASE_DELAY_MS = 100;
const MAX_DELAY_MS = 3000;
/** A node may ask for more patience than this with Retry-After; the callers' own loops provide it. */
const MAX_RETRY_AFTER_MS = 10_000;

interface HttpAnswer {
  readonly statusCode: number;
  readonly retryAfter: string | string[] | undefined;
  readonly chunks: readonly Buffer[];
  readonly bytes: number;
}

interface Exchange {
  readonly json: unknown;
  readonly bytes: number;
}

/** JSON-RPC 2.0 over HTTP with keep-alive: a time-out for the whole answer, a size cap, retries with full jitter. */
export function createRpc(options: RpcOptions): Rpc {
  const { url, timeoutMs, maxConcurrent, sleep, now, random, metrics } = options;
  const attempts = options.attempts ?? 5;
  const maxAnswerBytes = options.maxAnswerBytes ?? 256_000_000;
  const agent = new Agent({ connections: maxConcurrent, pipelining: 1, keepAliveTimeout: 30_000 });
  const queue = new PQueue({ concurrency: maxConcurrent });
  let nextId = 1;
  let closed = false;

  const send = async (body: unknown, signal: AbortSignal | undefined): Promise<HttpAnswer> => {
    const timeout = AbortSignal.timeout(timeoutMs);
    try {
      const response = await request(url, {
        dispatcher: agent,
        method: 'POST',
        headers: { 'content-type': 'application/json', accept: 'application/json' },
        body: JSON.stringify(body),
        signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
      });
      const chunks: Buffer[] = [];
      let bytes = 0;
      for await (const chunk of response.body as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        // Leaving the loop destroys the body.
        if (bytes > maxAnswerBytes) throw new AppError('NODE_ANSWER_INVALID', tooLarge(maxAnswerBytes));
        chunks.push(chunk);
      }
      return { statusCode: response.statusCode, retryAfter: response.headers['retry-after'], chunks, bytes };
    } catch (cause) {
      if (cause instanceof AppError) throw cause;
      if (isAborted(signal) || closed) throw givenUp(cause);
      // Connecting, resetting, timing out: all the network's.
      const why = timeout.aborted ? `did not answer in ${timeoutMs} ms` : 'did not answer';
      throw new AppError('NODE_UNREACHABLE', `the node ${why}`, { retryable: true, cause });
    }
  };

  const exchange = async (body: unknown, signal: AbortSignal | undefined): Promise<Exchange> => {
    const { statusCode, chunks, bytes, ...headers } = await send(body, signal);
    if (statusCode === 408 || statusCode === 425 || statusCode === 429 || statusCode >= 500) {
      throw new AppError('NODE_UNREACHABLE', `the node answered HTTP ${statusCode}`, {
        retryable: true,
        details: { retryAfterMs: readRetryAfter(headers.retryAfter, now()) },
      });
    }
    const json = parseJson(chunks);
    if (json === undefined && statusCode >= 400) {
      throw new AppError('NODE_UNREACHABLE', `the node answered HTTP ${statusCode}`);
    }
    if (json === undefined) throw invalidAnswer('the answer is not JSON (cut short?)');
    return { json, bytes };
  };

  const attempt = async <T>(
    name: string,
    body: unknown,
    read: (answer: Exchange) => T,
    signal: AbortSignal | undefined,
  ): Promise<T> => {
    const start = performance.now();
    try {
      const answer = read(await exchange(body, signal));
      metrics.observe(name, 'ok', performance.now() - start);
      return answer;
    } catch (error) {
      metrics.observe(name, outcomeOf(error), performance.now() - start);
      throw error;
    }
  };

  const withRetries = async <T>(
    name: string,
    body: unknown,
    read: (answer: Exchange) => T,
    { signal, priority = 0 }: CallOptions,
  ): Promise<T> => {
    for (let tries = 1; ; tries += 1) {
      if (isAborted(signal)) throw givenUp(signal?.reason);
      try {
        return await queue.add(() => attempt(name, body, read, signal), { priority });
      } catch (error) {
        if (!isRetryable(error) || tries >= attempts || isAborted(signal)) throw error;
        metrics.retried(name);
        await sleep(delayBefore(error, tries, random), signal);
      }
    }
  };

  return {
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
    async batch<T>(calls: readonly RpcCall<T>[], callOptions = {}) {
      const first = calls[0];
      if (first === undefined) return [];
      const firstId = nextId;
      nextId += calls.length;
      const body = calls.map(({ method, params }, index) => envelope(firstId + index, method, params));
      return await withRetries(
        `${first.method}[]`,
        body,
        ({ json, bytes }) => readBatch(calls, firstId, json, bytes),
        callOptions,
      );
    },
    async close() {
      closed = true;
      await agent.destroy();
    },
  };
}

function parseJson(chunks: readonly Buffer[]): unknown {
  const only = chunks[0];
  const text = (chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks)).toString('utf8');
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function readBatch<T>(
  calls: readonly RpcCall<T>[],
  firstId: number,
  json: unknown,
  bytes: number,
): Outcome<T>[] {
  if (!Array.isArray(json)) {
    const refusal = readEnvelope(`${calls[0]?.method ?? ''}[]`, json, null);
    throw refusal.ok ? invalidAnswer('a batch was answered with one result') : refusal.error;
  }
  const byId = new Map<unknown, unknown>(
    json.map((item: unknown) => [isObject(item) ? item['id'] : null, item]),
  );
  const share = Math.ceil(bytes / calls.length);
  return calls.map(({ method, parse }, index) => {
    const id = firstId + index;
    if (!byId.has(id)) throw invalidAnswer(`a batch was answered without call ${index} (${method})`);
    const outcome = readEnvelope(method, byId.get(id), id);
    if (outcome.ok) return { ok: true, value: parse(outcome.value, share) };
    // A failing server fails the exchange, so that it is tried again whole.
    if (outcome.error.retryable) throw outcome.error;
    return outcome;
  });
}

/** `id` null: an error without an id is read too (a refused batch has none). */
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
      throw invalidAnswer(`${method}: an error without a code`);
    return { ok: false, error: new RpcError(method, code, typeof message === 'string' ? message : '', data) };
  }
  if (id !== null && json['id'] !== id) throw invalidAnswer(`${method}: the answer is to another call`);
  if (!('result' in json) || json['result'] === undefined) throw invalidAnswer(`${method}: no result`);
  return { ok: true, value: json['result'] };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function outcomeOf(error: unknown): string {
  if (error instanceof RpcError) return String(error.rpcCode);
  return error instanceof AppError ? error.code : 'bug';
}

function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

function givenUp(cause: unknown): AppError {
  return new AppError('NODE_UNREACHABLE', 'the call was given up', { cause });
}

function tooLarge(limit: number): string {
  return `the answer is larger than ${limit} bytes`;
}

function readRetryAfter(header: string | string[] | undefined, now: number): number | null {
  if (typeof header !== 'string') return null;
  const ms = /^\d+$/.test(header.trim()) ? Number(header) * 1000 : Date.parse(header) - now;
  return Number.isFinite(ms) && ms >= 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : null;
}

/** Full jitter; never sooner than the node asked for. */
function delayBefore(error: unknown, tries: number, random: () => number): number {
  const jittered = random() * Math.min(MAX_DELAY_MS, BASE_DELAY_MS * 2 ** tries);
  const asked = error instanceof AppError ? error.details['retryAfterMs'] : null;
  return typeof asked === 'number' ? asked + jittered : jittered;
}

/** A method without parameters is sent an empty list, which every node takes. */
function envelope(id: number, method: string, params: RpcParams): object {
  return { jsonrpc: '2.0', id, method, params: Object.keys(params).length === 0 ? [] : params };
}
