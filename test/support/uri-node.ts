import type { IncomingMessage, ServerResponse } from 'node:http';

import { z } from 'zod';

import { serveOnLoopback } from '../../infra/embedded/loopback.ts';

/**
 * A node that answers only `starknet_call`, with the NFT URIs that a test sets. Other calls are forwarded to the node
 * `behind` it.
 */
export interface UriNode {
  readonly url: string;
  /** By id; for any other id the contract reverts with `reason`. */
  readonly uris: Map<bigint, string>;
  reason: string;
  /** While true every call is answered 503. */
  isUnavailable: boolean;
  close(): Promise<void>;
}

const requestSchema = z.object({ id: z.number(), method: z.string(), params: z.unknown() });
const callSchema = z.object({
  params: z.looseObject({ request: z.object({ calldata: z.array(z.string()) }) }),
});

export async function uriNode(behind: string | null = null): Promise<UriNode> {
  const node = { uris: new Map<bigint, string>(), reason: 'Not minted', isUnavailable: false };
  const answerTo = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    if (node.isUnavailable) {
      response.writeHead(503).end();
      return;
    }
    const body = Buffer.concat(chunks);
    const asked = requestSchema.parse(JSON.parse(body.toString()));
    response.setHeader('content-type', 'application/json');
    if (behind !== null && asked.method !== 'starknet_call') {
      const headers = { 'content-type': 'application/json' };
      const answer = await fetch(behind, { method: 'POST', headers, body: new Uint8Array(body) });
      response.end(await answer.text());
      return;
    }
    const { params } = callSchema.parse(asked);
    const [low = '0x0', high = '0x0'] = params.request.calldata;
    const uri = node.uris.get(BigInt(low) + (BigInt(high) << 128n));
    const failure = { code: 40, message: 'Contract error', data: { revert_error: `0x1 ('${node.reason}')` } };
    const answer = uri === undefined ? { error: failure } : { result: byteArray(uri) };
    response.end(JSON.stringify({ jsonrpc: '2.0', id: asked.id, ...answer }));
  };
  const served = await serveOnLoopback((request, response) => void answerTo(request, response));
  return Object.assign(node, served);
}

function byteArray(text: string): string[] {
  const hex = (bytes: Buffer): string => `0x${bytes.toString('hex').replace(/^0+/, '') || '0'}`;
  const bytes = Buffer.from(text);
  const full = Math.floor(bytes.length / 31);
  const words = Array.from({ length: full }, (_, i) => hex(bytes.subarray(31 * i, 31 * i + 31)));
  const rest = bytes.subarray(31 * full);
  return [`0x${full.toString(16)}`, ...words, hex(rest), `0x${rest.length.toString(16)}`];
}
