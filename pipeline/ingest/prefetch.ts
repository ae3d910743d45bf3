import { AppError } from '../../schemas/errors.ts';
import type { ContractsMap } from '../../schemas/messages/chain-blocks.ts';
import type { FetchedBlock } from '../node/types.ts';
import type { IngestDeps, PublishedBlock } from './ports.ts';
import { resolveContracts } from './publish.ts';
import { createSource } from './source.ts';
import type { Source } from './source.ts';

/** A block as it was fetched, with what its contracts are: ready to be published. */
export interface ReadyBlock extends PublishedBlock, Pick<FetchedBlock, 'status' | 'bytes'> {
  readonly contracts: ContractsMap;
}

/** Blocks held or in flight, however small they are. */
const PREFETCH_BLOCKS = 2000;

/** The blocks of a chunk from a height on, whole, with their contracts looked up, several at a time. */
export function createPrefetch(
  deps: Pick<IngestDeps, 'node' | 'standards' | 'settings'>,
  from: number,
  options: { readonly priority: number; readonly finalOnly: boolean; readonly signal: AbortSignal },
): Source<ReadyBlock> {
  const { node, settings } = deps;
  return createSource<ReadyBlock>({
    from,
    concurrency: settings.prefetchConcurrency,
    maxBytes: settings.prefetchBytes,
    maxBlocks: PREFETCH_BLOCKS,
    fetch: async (height, closed) => {
      const { body, status, bytes } = await node.getBlockWithReceipts(height, {
        signal: AbortSignal.any([closed, options.signal]),
        priority: options.priority,
      });
      if (options.finalOnly && status !== 'ACCEPTED_ON_L1') throw notFinal(height);
      return { block: body, contracts: await resolveContracts(deps, body), status, bytes };
    },
  });
}

/** A range that is final is only taken from a node that knows it to be final: another one may be on a dead fork. */
function notFinal(height: number): AppError {
  return new AppError('NODE_INCONSISTENT', `block ${height} is not accepted on L1, as this node sees it`, {
    retryable: true,
    details: { height },
  });
}
