import PQueue from 'p-queue';

import { isRpcError, rpcCodes } from './errors.ts';
import type { CallOptions, Node } from './types.ts';

/** A block as the log has it. */
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

/** Blocks asked for side by side. */
const CONCURRENCY = 8;

/**
 * Reads each of these blocks from the node once more and compares its hash, the number of its transactions (which the
 * node is also asked for alone) and of its events. After the first that cannot be read, nothing more is asked.
 */
export async function compareBlocks(
  node: Pick<Node, 'getBlockWithReceipts' | 'getBlockTransactionCount'>,
  blocks: AsyncIterable<ComparedBlock>,
  { signal, onCompared }: CallOptions & { onCompared?: () => void } = {},
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
      onCompared?.();
    } catch (error) {
      failure.abort(error);
      queue.clear();
    }
  };
  for await (const block of blocks) {
    void queue.add(() => compare(block));
    // Millions of blocks: no promise of one round may hold on to another's.
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
    const theirEvents = body.transactions.reduce((sum, transaction) => sum + transaction.events.length, 0);
    const told = [
      ...(body.hash === hash ? [] : [`the log has ${hash}, the node ${body.hash}`]),
      ...(body.transactions.length === transactions && count === transactions
        ? []
        : [
            `the log has ${transactions} transactions, the node ${body.transactions.length} and counts ${count}`,
          ]),
      ...(theirEvents === events ? [] : [`the log has ${events} events, the node ${theirEvents}`]),
    ];
    return told.map((what) => ({ height, what: `block ${height}: ${what}` }));
  } catch (error) {
    if (!isRpcError(error, rpcCodes.blockNotFound)) throw error;
    return [{ height, what: `block ${height}: the node does not have it` }];
  }
}
