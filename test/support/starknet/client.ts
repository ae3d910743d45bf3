import type { NodeOptions, SimulatedNode } from './node.ts';
import { createSimulatedNode } from './node.ts';

type Receipt = {
  transaction_hash: string;
  execution_status: string;
  finality_status: string;
  actual_fee: { amount: string; unit: string };
  events: { from_address: string; keys: string[]; data: string[] }[];
};
export type Block = {
  status: string;
  block_hash: string;
  parent_hash: string;
  block_number: number;
  timestamp: number;
  sequencer_address: string;
  event_commitment: string;
  event_count: number;
  transaction_count: number;
  transactions: {
    transaction: { type: string; version: string; sender_address?: string };
    receipt: Receipt;
  }[];
};
/** A parsed JSON value (`any`): a test reads the fields that it expects, and fails if they are missing. */
export type Json = ReturnType<typeof JSON.parse>;
export type Answer = { id?: unknown; result?: Json; error?: { code: number; message: string; data?: Json } };

export function post(url: string, body: unknown): Promise<Response> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: text });
}

export async function jsonOf(response: Promise<Response>): Promise<Json> {
  return JSON.parse(await (await response).text());
}

export async function rpc(url: string, method: string, params: unknown = []): Promise<Answer> {
  return await jsonOf(post(url, { jsonrpc: '2.0', id: 7, method, params }));
}

export async function blockAt(url: string, blockId: unknown): Promise<Block> {
  const { result, error } = await rpc(url, 'starknet_getBlockWithReceipts', [blockId]);
  if (error !== undefined) throw new Error(`${error.code} ${error.message}`);
  return result;
}

/** Runs a node that advances by commands only, and closes it. */
export async function withNode(
  options: NodeOptions,
  use: (node: SimulatedNode) => Promise<void>,
): Promise<void> {
  const node = await createSimulatedNode({
    manual: true,
    genesisTime: 1_700_000_000,
    initialHead: 50,
    ...options,
  });
  try {
    await use(node);
  } finally {
    await node.close();
  }
}
