import { isDeepStrictEqual } from 'node:util';

import { AppError } from '../../schemas/errors.ts';
import { capabilities } from '../node/capabilities.ts';
import type { IngestDeps } from './ports.ts';
import { publishStatus, statusStamp } from './publish.ts';

/**
 * Makes sure that the node serves the chain that was indexed so far, and tells the log what the node can do when that
 * is new.
 *
 * @throws `CHAIN_MISMATCH` when it is another chain
 */
export async function identifyChain(deps: IngestDeps, signal: AbortSignal): Promise<void> {
  const { node, store, clock, log } = deps;
  const found = await capabilities(node, { signal });
  const kept = await store.identify(found.chainId);
  if (kept !== found.chainId) {
    throw new AppError(
      'CHAIN_MISMATCH',
      `The node serves chain ${chainName(found.chainId)}, this installation holds ${chainName(kept)}`,
      { details: { found: found.chainId, kept } },
    );
  }
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

/** A chain id is a short text in a felt: SN_MAIN, SN_SEPOLIA. */
function chainName(chainId: string): string {
  const text = Buffer.from(chainId.slice(2), 'hex').toString('latin1').replaceAll('\0', '');
  return /^[\x20-\x7e]+$/.test(text) ? text : chainId;
}
