import { z } from 'zod';

import type { SimBlock } from './blocks.ts';
import { getEvents } from './events.ts';
import { hexOf } from './hash.ts';
import type { Ledger } from './ledger.ts';
import {
  blockId,
  checkTag,
  eventFilter,
  felt,
  functionCall,
  readParams,
  type BlockId,
  type SpecVersion,
} from './params.ts';
import { rpcErrors } from './rpc-errors.ts';

export type RpcContext = {
  ledger: Ledger;
  spec: SpecVersion;
  chainId: string;
  /** How many blocks one getEvents call looks through before it answers with a token. */
  eventScan: number;
};

type Method = (context: RpcContext, params: unknown) => unknown;

const specVersions: Record<SpecVersion, string> = { '0.8': '0.8.1', '0.9': '0.9.0', '0.10': '0.10.0' };

type Found = { block: SimBlock; status: string };

function statusOf(ledger: Ledger, height: number): string {
  return height <= ledger.l1() ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2';
}

/** The height a block id names, at most the head. */
function heightOf({ ledger, spec }: RpcContext, id: BlockId): number {
  checkTag(id, spec);
  if (id === 'l1_accepted') return ledger.l1();
  if (typeof id === 'string') return ledger.head();
  const height = 'block_number' in id ? id.block_number : ledger.heightOf(id.block_hash);
  if (height === null || height > ledger.head()) throw rpcErrors.blockNotFound();
  return height;
}

function findBlock(context: RpcContext, id: BlockId): Found {
  const { ledger } = context;
  checkTag(id, context.spec);
  const unfinished = id === 'pending' || id === 'pre_confirmed';
  const block = unfinished ? ledger.pending() : ledger.at(heightOf(context, id));
  if (block === null) throw rpcErrors.blockNotFound();
  return { block, status: unfinished ? 'PRE_CONFIRMED' : statusOf(ledger, block.height) };
}

function header({ block, status }: Found, spec: SpecVersion): Record<string, unknown> {
  if (status !== 'PRE_CONFIRMED') {
    const counts = spec === '0.10' ? block.counts : {};
    return { status, block_hash: block.hash, parent_hash: block.parentHash, ...block.header, ...counts };
  }
  const { new_root: _root, block_number, ...rest } = block.header;
  return spec === '0.8' ? { parent_hash: block.parentHash, ...rest } : { status, block_number, ...rest };
}

function finality({ status }: Found, spec: SpecVersion): string {
  return status === 'PRE_CONFIRMED' && spec === '0.8' ? 'ACCEPTED_ON_L2' : status;
}

/** A block as `starknet_getBlockWithReceipts` gives it. */
export function blockWithReceipts(found: Found, spec: SpecVersion): Record<string, unknown> {
  const finality_status = finality(found, spec);
  const transactions = found.block.txs.map(({ transaction, receipt }) => ({
    transaction,
    receipt: { ...receipt, finality_status },
  }));
  return { ...header(found, spec), transactions };
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

const onlyBlock = z.object({ block_id: blockId });

const methods: Record<string, Method> = {
  starknet_specVersion: ({ spec }) => specVersions[spec],
  starknet_chainId: ({ chainId }) => chainId,
  starknet_syncing: () => false,
  starknet_blockNumber: ({ ledger }) => ledger.head(),

  starknet_blockHashAndNumber(context) {
    const { block } = findBlock(context, 'latest');
    return { block_hash: block.hash, block_number: block.height };
  },

  async starknet_getBlockWithReceipts(context, params) {
    const { block_id } = readParams(onlyBlock, ['block_id'], params);
    const found = context.ledger.prepared === undefined ? null : await prepared(context, block_id);
    return found ?? blockWithReceipts(findBlock(context, block_id), context.spec);
  },

  starknet_getBlockWithTxHashes(context, params) {
    const { block_id } = readParams(onlyBlock, ['block_id'], params);
    const found = findBlock(context, block_id);
    return { ...header(found, context.spec), transactions: found.block.txs.map(({ hash }) => hash) };
  },

  starknet_getBlockWithTxs(context, params) {
    const { block_id } = readParams(onlyBlock, ['block_id'], params);
    const found = findBlock(context, block_id);
    const transactions = found.block.txs.map(({ hash, transaction }) => ({
      transaction_hash: hash,
      ...transaction,
    }));
    return { ...header(found, context.spec), transactions };
  },

  starknet_getBlockTransactionCount(context, params) {
    const { block_id } = readParams(onlyBlock, ['block_id'], params);
    return findBlock(context, block_id).block.txs.length;
  },

  starknet_getEvents(context, params) {
    const { filter } = readParams(z.object({ filter: eventFilter }), ['filter'], params);
    const limits = { scan: context.eventScan, indexes: context.spec === '0.10' };
    return getEvents(context.ledger, filter, (id) => heightOf(context, id), limits);
  },

  starknet_call(context, params) {
    const schema = z.object({ request: functionCall, block_id: blockId });
    const { request, block_id } = readParams(schema, ['request', 'block_id'], params);
    const height = heightOf(context, block_id);
    const { contract_address: address, entry_point_selector: selector, calldata = [] } = request;
    const said = context.ledger.contracts.call({ address, selector, calldata, height });
    switch (said.is) {
      case 'result':
        return said.felts;
      case 'no-contract':
        throw rpcErrors.contractNotFound();
      case 'no-entry-point':
        throw rpcErrors.entryPointNotFound();
      case 'reverted':
        throw contractError(address, selector, said.classHash, said.reason);
    }
  },

  starknet_getClassHashAt: (context, params) => classHashAt(context, params),

  starknet_getClassAt(context, params) {
    return context.ledger.contracts.classByHash(BigInt(classHashAt(context, params)));
  },

  starknet_getClass(context, params) {
    const schema = z.object({ block_id: blockId, class_hash: felt });
    const { block_id, class_hash } = readParams(schema, ['block_id', 'class_hash'], params);
    heightOf(context, block_id);
    const found = context.ledger.contracts.classByHash(class_hash);
    if (found === null) throw rpcErrors.classNotFound();
    return found;
  },

  starknet_getTransactionReceipt(context, params) {
    const { transaction_hash } = readParams(
      z.object({ transaction_hash: felt }),
      ['transaction_hash'],
      params,
    );
    const found = context.ledger.transaction(hexOf(transaction_hash));
    const tx = found?.block.txs[found.index];
    if (found === null || tx === undefined) throw rpcErrors.transactionNotFound();
    const { block } = found;
    const finality_status = statusOf(context.ledger, block.height);
    return { ...tx.receipt, finality_status, block_hash: block.hash, block_number: block.height };
  },
};

function classHashAt(context: RpcContext, params: unknown): string {
  const schema = z.object({ block_id: blockId, contract_address: felt });
  const { block_id, contract_address } = readParams(schema, ['block_id', 'contract_address'], params);
  const hash = context.ledger.contracts.classHash(contract_address, heightOf(context, block_id));
  if (hash === null) throw rpcErrors.contractNotFound();
  return hash;
}

/** A result that is JSON already. */
export class ReadyJson {
  readonly json: Buffer;

  constructor(json: Buffer) {
    this.json = json;
  }
}

async function prepared(context: RpcContext, id: BlockId): Promise<ReadyJson | null> {
  if (id === 'pending' || id === 'pre_confirmed') return null;
  const json = await context.ledger.prepared?.(heightOf(context, id));
  return json === undefined || json === null ? null : new ReadyJson(json);
}

/** Runs one method; throws RpcError. */
export async function callMethod(context: RpcContext, name: string, params: unknown): Promise<unknown> {
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  if (method === undefined) throw rpcErrors.methodNotFound();
  return await method(context, params);
}

/** The height a request is about, where it names one; for faults that are aimed at heights. */
export function heightOfRequest(context: RpcContext, params: unknown): number | null {
  const found = z
    .object({ block_id: blockId })
    .safeParse(Array.isArray(params) ? { block_id: params[0] } : params);
  if (!found.success) return null;
  try {
    return heightOf(context, found.data.block_id);
  } catch {
    return null;
  }
}
