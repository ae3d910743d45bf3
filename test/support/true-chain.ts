import { z } from 'zod';

import { startSimulatedNode } from '../../infra/embedded/starknet/node.ts';
import { tokenTable } from '../../infra/embedded/starknet/tokens.ts';
import { parseBlockWithReceipts } from '../../pipeline/node/parse.ts';
import { toFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody, ContractsMap } from '../../schemas/messages/chain-blocks.ts';
import { independentBlockHash } from './block-hash.ts';

const answer = z.object({ result: z.unknown() });

/** The first blocks of the simulated chain. */
export async function trueChain(options: {
  readonly blocks: number;
  readonly transfersPerBlock: number;
}): Promise<{ readonly bodies: readonly BlockBody[]; readonly contracts: ContractsMap }> {
  const { blocks, transfersPerBlock } = options;
  const node = await startSimulatedNode({
    seed: 'proofs',
    initialHead: blocks,
    transfersPerBlock,
    malformed: 0.01,
    // No block is added while it is read.
    intervalMs: 1_000_000,
  });
  const fetchBody = async (block_number: number): Promise<BlockBody> => {
    const params = { block_id: { block_number } };
    const method = 'starknet_getBlockWithReceipts';
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(node.url, { method: 'POST', headers, body });
    return parseBlockWithReceipts(answer.parse(await response.json()).result, 1).body;
  };
  const bodies: BlockBody[] = [];
  try {
    for (let height = 0; height < blocks; height += 1) bodies.push(await fetchBody(height));
  } finally {
    await node.close();
  }
  const contracts = tokenTable().list.map(
    ({ address, standard }) => [toFelt(address), { standard, class_hash: null }] as const,
  );
  return { bodies, contracts: Object.fromEntries(contracts) };
}

/** A block that was changed or made by hand, with the hash of its header, on top of a parent. */
export function withTrueHash(body: BlockBody, parent: Felt): BlockBody {
  const block = { ...body, parent_hash: parent };
  return { ...block, hash: toFelt(independentBlockHash(block)) };
}
