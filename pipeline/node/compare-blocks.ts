import PQueue from 'p-queue';

import { countEvents } from '../../schemas/messages/chain-blocks.ts';
import { isRpcError, rpcCodes } from './errors.ts';
import type { CallOptions, Node } from './types.ts';

/** A block of the log. */
export interface ComparedBlock {
  readonly height: number;
  readonly hash: string;
  readonly transactions: number;
  readonly events: number;
}

export interface BlockDifference {
  readonly height: number;
  readonly what: string;
}

/** Blocks fetched concurrently. */
const CONCURRENCY = 8;

/**
 * Fetches each block from the node and compares its hash, its event count and its transaction count, which is also
 * requested separately. Stops at the first block that cannot be fetched.
 */
export async function compareBlocks(
  node: Pick<Node, 'getBlockWithReceipts' | 'getBlockTransactionCount'>,
  blocks: AsyncIterable<ComparedBlock>,
  { signal }: CallOptions = {},
): Promise<BlockDifference[]> {
  const failure = new AbortController();
  const options = {
    signal: signal === undefined ? failure.signal : AbortSignal.any([signal, failure.signal]),
  };
  const queue = new PQueue({ concurrency: CONCURRENCY });
  const found: BlockDifference[] = [];
  const compare = async (block: ComparedBlock): Promise<void> => {
    try {
      found.push(...(await differencesOf(node, block, options)));
    } catch (error) {
      failure.abort(error);
      queue.clear();
    }
  };
  for await (const block of blocks) {
    void queue.add(() => compare(block));
    // Bounds memory over millions of blocks: no promise may reference an earlier one.
    await queue.onSizeLessThan(2 * CONCURRENCY);
    if (failure.signal.aborted) break;
  }
  await queue.onIdle();
  failure.signal.throwIfAborted();
  return found.toSorted((a, b) => a.height - b.height);
}

async function differencesOf(
  node: Pick<Node, 'getBlockWithReceipts' | 'getBlockTransactionCount'>,
  { height, hash, transactions, events }: ComparedBlock,
  options: CallOptions,
): Promise<BlockDifference[]> {
  try {
    const [{ body }, count] = await Promise.all([
      node.getBlockWithReceipts(height, options),
      node.getBlockTransactionCount(height, options),
    ]);
    const theirEvents = countEvents(body);
    const differences = [
      ...(body.hash === hash ? [] : [`the log has ${hash}, the node ${body.hash}`]),
      ...(body.transactions.length === transactions && count === transactions
        ? []
        : [
            `the log has ${transactions} transactions, the node ${body.transactions.length} and counts ${count}`,
          ]),
      ...(theirEvents === events ? [] : [`the log has ${events} events, the node ${theirEvents}`]),
    ];
    return differences.map((what) => ({ height, what: `block ${height}: ${what}` }));
  } catch (error) {
    if (!isRpcError(error, rpcCodes.blockNotFound)) throw error;
    return [{ height, what: `block ${height}: missing on the node` }];
  }
}
