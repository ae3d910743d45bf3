import { z } from 'zod';

import type { SimBlock } from './blocks.ts';
import { hexOf } from './hash.ts';
import { heightOf, type Ledger } from './ledger.ts';
import { blockId, eventFilter, felt, functionCall, readParams, rpcErrors } from './protocol.ts';
import type { BlockId, EventFilter } from './protocol.ts';
import type { RawEvent } from './layouts.ts';

export type RpcContext = {
  ledger: Ledger;
  chainId: string;
  /** Number of blocks that one getEvents call scans before it returns a continuation token. */
  eventScan: number;
};

export type RpcCall = { id: unknown; method: string; params: unknown };

/** The result of a call; throws RpcError. A Buffer holds the result as JSON. */
export type RunCall = (call: RpcCall) => Promise<unknown>;

type Found = { block: SimBlock; status: string };

function statusOf(ledger: Ledger, height: number): string {
  return height <= ledger.l1() ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2';
}

function findBlock(ledger: Ledger, id: BlockId): Found {
  const isPending = id === 'pre_confirmed';
  const block = isPending ? ledger.pending() : ledger.at(heightOf(ledger, id));
  if (block === null) throw rpcErrors.blockNotFound();
  return { block, status: isPending ? 'PRE_CONFIRMED' : statusOf(ledger, block.height) };
}

/** The header of a block, with its status. */
function header({ block, status }: Found): Record<string, unknown> {
  if (status !== 'PRE_CONFIRMED') {
    return {
      status,
      block_hash: block.hash,
      parent_hash: block.parentHash,
      ...block.header,
      ...block.counts,
    };
  }
  const { new_root: _root, ...rest } = block.header;
  return { status, ...rest };
}

/** The result of `starknet_getBlockWithReceipts`. */
export function blockWithReceipts(found: Found): Record<string, unknown> {
  const transactions = found.block.txs.map(({ transaction, receipt }) => ({
    transaction,
    receipt: { ...receipt, finality_status: found.status },
  }));
  return { ...header(found), transactions };
}

function contractError(address: bigint, selector: bigint, classHash: string, reason: string) {
  return rpcErrors.contractError({
    revert_error: {
      contract_address: hexOf(address),
      class_hash: classHash,
      selector: hexOf(selector),
      error: `0x${Buffer.from(reason.slice(0, 31)).toString('hex')} ('${reason}')`,
    },
  });
}

const blockParams = z.object({ block_id: blockId });
const eventParams = z.object({ filter: eventFilter });
const callParams = z.object({ request: functionCall, block_id: blockId });
const classParams = z.object({ block_id: blockId, class_hash: felt });
const contractParams = z.object({ block_id: blockId, contract_address: felt });
const transactionParams = z.object({ transaction_hash: felt });

const methods: Record<string, (context: RpcContext, params: unknown) => unknown> = {
  starknet_specVersion: () => '0.10.0',
  starknet_chainId: ({ chainId }) => chainId,
  starknet_syncing: () => false,
  starknet_blockNumber: ({ ledger }) => ledger.head(),

  starknet_blockHashAndNumber({ ledger }) {
    const { block } = findBlock(ledger, 'latest');
    return { block_hash: block.hash, block_number: block.height };
  },

  starknet_getBlockWithReceipts: (context, params) => blockWithReceipts(requestedBlock(context, params)),

  starknet_getBlockWithTxHashes(context, params) {
    const found = requestedBlock(context, params);
    return { ...header(found), transactions: found.block.txs.map(({ hash }) => hash) };
  },

  starknet_getBlockWithTxs(context, params) {
    const found = requestedBlock(context, params);
    const transactions = found.block.txs.map(({ hash, transaction }) => ({
      transaction_hash: hash,
      ...transaction,
    }));
    return { ...header(found), transactions };
  },

  starknet_getBlockTransactionCount: (context, params) => requestedBlock(context, params).block.txs.length,

  starknet_getEvents({ ledger, eventScan }, params) {
    const { filter } = readParams(eventParams, params);
    return getEvents(ledger, filter, eventScan);
  },

  starknet_call({ ledger }, params) {
    const { request, block_id } = readParams(callParams, params);
    const height = heightOf(ledger, block_id);
    const { contract_address: address, entry_point_selector: selector, calldata = [] } = request;
    const outcome = ledger.contracts.call({ address, selector, calldata, height });
    switch (outcome.is) {
      case 'result':
        return outcome.felts;
      case 'no-contract':
        throw rpcErrors.contractNotFound();
      case 'no-entry-point':
        throw rpcErrors.entryPointNotFound();
      case 'reverted':
        throw contractError(address, selector, outcome.classHash, outcome.reason);
    }
  },

  starknet_getClassHashAt: (context, params) => classHashAt(context, params),

  starknet_getClassAt(context, params) {
    return context.ledger.contracts.classByHash(BigInt(classHashAt(context, params)));
  },

  starknet_getClass({ ledger }, params) {
    const { block_id, class_hash } = readParams(classParams, params);
    heightOf(ledger, block_id);
    const found = ledger.contracts.classByHash(class_hash);
    if (found === null) throw rpcErrors.classNotFound();
    return found;
  },

  starknet_getTransactionReceipt({ ledger }, params) {
    const { transaction_hash } = readParams(transactionParams, params);
    const found = ledger.transaction(hexOf(transaction_hash));
    const tx = found?.block.txs[found.index];
    if (found === null || tx === undefined) throw rpcErrors.transactionNotFound();
    const { block } = found;
    const finality_status = statusOf(ledger, block.height);
    return { ...tx.receipt, finality_status, block_hash: block.hash, block_number: block.height };
  },
};

/** The newest header, as `starknet_subscriptionNewHeads` announces it. */
export function newHead(ledger: Ledger): Record<string, unknown> {
  const { status: _status, ...announced } = header(findBlock(ledger, 'latest'));
  return announced;
}

function requestedBlock({ ledger }: RpcContext, params: unknown): Found {
  return findBlock(ledger, readParams(blockParams, params).block_id);
}

function classHashAt({ ledger }: RpcContext, params: unknown): string {
  const { block_id, contract_address } = readParams(contractParams, params);
  const hash = ledger.contracts.classHash(contract_address, heightOf(ledger, block_id));
  if (hash === null) throw rpcErrors.contractNotFound();
  return hash;
}

export function createRpc(context: RpcContext): RunCall {
  return async ({ method, params }) => {
    const run = Object.hasOwn(methods, method) ? methods[method] : undefined;
    if (run === undefined) throw rpcErrors.methodNotFound();
    return await run(context, params);
  };
}

const MAX_PAGE = 1024;
const MAX_KEYS = 16;

type EventPage = { events: Record<string, unknown>[]; continuation_token?: string };

/** `starknet_getEvents`. A page may be empty and still have a token: none of the `scan` blocks held a match. */
function getEvents(ledger: Ledger, filter: EventFilter, scan: number): EventPage {
  if (filter.chunk_size > MAX_PAGE) throw rpcErrors.pageTooBig();
  if ((filter.keys?.length ?? 0) > MAX_KEYS) throw rpcErrors.tooManyKeys();
  const first = boundOf(ledger, filter.from_block, 0);
  const last = Math.min(boundOf(ledger, filter.to_block, Infinity), ledger.head());
  const start =
    filter.continuation_token === undefined
      ? { height: first, event: 0 }
      : readToken(filter.continuation_token);
  if (start.height < first) throw rpcErrors.badToken();

  const matches = matcher(filter);
  const events: Record<string, unknown>[] = [];
  for (let height = start.height, scanned = 0; height <= last; height++, scanned++) {
    if (scanned === scan) return { events, continuation_token: `${height}-0` };
    const block = ledger.at(height);
    if (block === null) continue;
    let position = 0;
    for (const [txIndex, tx] of block.txs.entries()) {
      for (const [eventIndex, event] of tx.events.entries()) {
        const here = position++;
        if (height === start.height && here < start.event) continue;
        if (!matches(event)) continue;
        if (events.length === filter.chunk_size) return { events, continuation_token: `${height}-${here}` };
        events.push({
          ...event,
          block_hash: block.hash,
          block_number: block.height,
          transaction_hash: tx.hash,
          transaction_index: txIndex,
          event_index: eventIndex,
        });
      }
    }
  }
  return { events };
}

/** Unlike elsewhere, nodes accept heights above the head here. */
function boundOf(ledger: Ledger, id: BlockId | undefined, absent: number): number {
  if (id === undefined) return absent;
  return typeof id === 'object' && 'block_number' in id ? id.block_number : heightOf(ledger, id);
}

function readToken(token: string): { height: number; event: number } {
  const found = /^(\d{1,15})-(\d{1,9})$/.exec(token);
  if (found === null) throw rpcErrors.badToken();
  return { height: Number(found[1]), event: Number(found[2]) };
}

function matcher({ address, keys }: EventFilter): (event: RawEvent) => boolean {
  const addresses = address === undefined ? null : new Set(Array.isArray(address) ? address : [address]);
  const wanted = (keys ?? []).map((some) => new Set(some));
  return (event) => {
    if (addresses !== null && addresses.size > 0 && !addresses.has(BigInt(event.from_address))) return false;
    return wanted.every((some, i) => {
      const key = event.keys[i];
      return some.size === 0 || (key !== undefined && some.has(BigInt(key)));
    });
  };
}
