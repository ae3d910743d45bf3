import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

import { errorOf, spoil, type Faults, type Strike } from './faults.ts';
import type { Ledger } from './ledger.ts';
import { ReadyJson, callMethod, heightOfRequest, type RpcContext } from './rpc.ts';
import { RpcError, rpcErrors } from './rpc-errors.ts';

const MAX_BODY = 4 * 1024 * 1024;
const NOT_JSON = Symbol('not JSON');

export type RpcHandlerOptions = {
  context: RpcContext;
  faults: Faults;
  /** The ledger of another fork, for the `two-forks` fault. */
  otherFork: (fork: number | undefined) => Ledger;
};

type Call = { id: unknown; method: string; params: unknown; strikes: Strike[] };

export async function readBody(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of request) {
    if (!Buffer.isBuffer(part)) continue;
    size += part.length;
    if (size > MAX_BODY) throw new RangeError('body too large');
    parts.push(part);
  }
  return Buffer.concat(parts).toString('utf8');
}

export function send(
  response: ServerResponse,
  status: number,
  body: string | Buffer,
  headers: Record<string, string> = {},
) {
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...headers,
  });
  response.end(body);
}

/** Answers one POST: a call or a batch of them, with the faults that are set. */
export function createRpcHandler({ context, faults, otherFork }: RpcHandlerOptions) {
  function read(value: unknown): Call | null {
    if (
      typeof value !== 'object' ||
      value === null ||
      !('method' in value) ||
      typeof value.method !== 'string'
    )
      return null;
    const id = 'id' in value ? value.id : null;
    const params = 'params' in value ? value.params : undefined;
    const strikes = faults.strike(value.method, () => heightOfRequest(context, params));
    return { id, method: value.method, params, strikes };
  }

  async function run(call: Call | null): Promise<string | Buffer> {
    if (call === null) return envelope(null, { error: rpcErrors.invalidRequest().toJson() });
    const { id, method, params, strikes } = call;
    try {
      const wrong = errorOf(strikes);
      if (wrong !== null) throw wrong;
      const other = strikes.find(({ fault, before }) => fault.kind === 'two-forks' && before % 2 === 0);
      const here = other === undefined ? context : { ...context, ledger: otherFork(other.fault.fork) };
      const result = await callMethod(here, method, params);
      if (!(result instanceof ReadyJson)) return envelope(id, { result: spoil(result, strikes) });
      if (strikes.length > 0)
        return envelope(id, { result: spoil(JSON.parse(result.json.toString()), strikes) });
      const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":`;
      return Buffer.concat([Buffer.from(head), result.json, Buffer.from('}')]);
    } catch (error) {
      if (error instanceof RpcError) return envelope(id, { error: error.toJson() });
      const reason = error instanceof Error ? (error.stack ?? error.message) : String(error);
      return envelope(id, { error: { code: -32603, message: 'Internal error', data: reason } });
    }
  }

  return async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = parseJson(await readBody(request));
    if (body === NOT_JSON)
      return send(response, 200, envelope(null, { error: rpcErrors.parseError().toJson() }));
    const batch = Array.isArray(body);
    const calls = (batch ? body : [body]).map(read);
    const strikes = calls.flatMap((call) => call?.strikes ?? []);
    const struck = (kind: string) => strikes.find(({ fault }) => fault.kind === kind)?.fault;

    const slow = struck('latency');
    if (slow !== undefined) await pause(slow.ms ?? 1000);
    if (struck('hang') !== undefined) return;
    const busy = struck('http429');
    if (busy !== undefined) return send(response, 429, '{}', { 'retry-after': String(busy.retryAfter ?? 1) });
    if (struck('http503') !== undefined)
      return send(response, 503, 'upstream connect error', { 'content-type': 'text/plain' });

    const answers = await Promise.all(calls.map(run));
    const first = answers[0];
    if (first === undefined)
      return send(response, 200, envelope(null, { error: rpcErrors.invalidRequest().toJson() }));
    const text = batch ? `[${answers.map(String).join(',')}]` : first;
    if (struck('truncated') === undefined) return send(response, 200, text);
    const whole = Buffer.from(text);
    send(response, 200, whole.subarray(0, Math.floor(whole.length / 2)));
  };
}

function envelope(id: unknown, answer: { result: unknown } | { error: unknown }): string {
  return JSON.stringify({ jsonrpc: '2.0', id: id ?? null, ...answer });
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return NOT_JSON;
  }
}
