import { isDeepStrictEqual } from 'node:util';

import { capabilities } from '../node/capabilities.ts';
import { assertHeld, chainName } from '../node/chain-id.ts';
import type { HoldChain } from '../node/chain-id.ts';
import type { IngestDeps, IngestStore } from './ports.ts';
import { publishStatus, statusStamp } from './publish.ts';

/** The first chain that is named is the one that an installation holds for good. */
export function holdChainIn(store: Pick<IngestStore, 'identify'>): HoldChain {
  return async (served) => assertHeld(served, await store.identify(served));
}

/**
 * Makes sure that the node serves the chain that was indexed so far, and tells the log what the node can do when that
 * is new.
 *
 * @throws `CHAIN_MISMATCH` when it is another chain
 */
export async function identifyChain(deps: IngestDeps, signal: AbortSignal): Promise<void> {
  const { node, store, clock, log } = deps;
  const found = await capabilities(node, { signal });
  await holdChainIn(store)(found.chainId);
  if (isDeepStrictEqual(await store.announced(), { ...found })) return;
  log.info({ ...found, chain: chainName(found.chainId) }, 'chain identified');
  await publishStatus(deps, [
    {
      type: 'network.identified',
      ...statusStamp(clock),
      chain_id: found.chainId,
      spec_version: found.specVersion,
      has_header_counts: found.hasHeaderCounts,
      has_l1_tag: found.hasL1Tag,
    },
  ]);
  await store.setAnnounced(found);
}
