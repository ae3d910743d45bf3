import type { RequestListener } from 'node:http';

import { jsonOf } from '../../json.ts';
import { readBody, send } from '../loopback.ts';
import { RpcError, rpcErrors } from './protocol.ts';
import type { RpcCall, RunCall } from './rpc.ts';

/** The calls of a request body, null for each invalid one; null: the body is not JSON. */
export type RpcRequest = { calls: readonly (RpcCall | null)[]; isBatch: boolean } | null;

export function parseRequest(text: string): RpcRequest {
  const body = jsonOf(text);
  if (body === undefined) return null;
  return Array.isArray(body)
    ? { calls: body.map(toCall), isBatch: true }
    : { calls: [toCall(body)], isBatch: false };
}

function toCall(value: unknown): RpcCall | null {
  if (typeof value !== 'object' || value === null) return null;
  if (!('method' in value) || typeof value.method !== 'string') return null;
  return {
    id: 'id' in value ? value.id : null,
    method: value.method,
    params: 'params' in value ? value.params : undefined,
  };
}

/** The response body of a request. */
export async function answerRequest(request: RpcRequest, run: RunCall): Promise<string | Buffer> {
  if (request === null) return failure(null, rpcErrors.parseError());
  const responses = await Promise.all(request.calls.map((call) => answerCall(call, run)));
  const [first] = responses;
  if (first === undefined) return failure(null, rpcErrors.invalidRequest());
  if (!request.isBatch) return first;
  // Prepared results stay bytes: decoding and encoding them again would cost more than reading them.
  const parts = responses.flatMap((one, i) => [
    Buffer.from(i === 0 ? '[' : ','),
    typeof one === 'string' ? Buffer.from(one) : one,
  ]);
  return Buffer.concat([...parts, Buffer.from(']')]);
}

async function answerCall(call: RpcCall | null, run: RunCall): Promise<string | Buffer> {
  if (call === null) return failure(null, rpcErrors.invalidRequest());
  const { id } = call;
  try {
    const result = await run(call);
    if (!Buffer.isBuffer(result)) return JSON.stringify({ jsonrpc: '2.0', id: id ?? null, result });
    const head = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":`;
    return Buffer.concat([Buffer.from(head), result, Buffer.from('}')]);
  } catch (error) {
    if (error instanceof RpcError) return failure(id, error);
    return failure(
      id,
      rpcErrors.internal(error instanceof Error ? (error.stack ?? error.message) : String(error)),
    );
  }
}

/** The response body of an error; `id` is null for a request that is refused as a whole. */
export function failure(id: unknown, error: RpcError): string {
  return JSON.stringify({ jsonrpc: '2.0', id: id ?? null, error: error.toJson() });
}

export function createRpcListener(run: RunCall): RequestListener {
  return (request, response) => {
    if (request.method !== 'POST')
      return send(response, 405, '{"error":"send JSON-RPC by POST"}', { allow: 'POST' });
    readBody(request)
      .then((text) => answerRequest(parseRequest(text), run))
      .then((body) => send(response, 200, body))
      .catch(() => response.destroy());
  };
}
