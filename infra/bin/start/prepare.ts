import type { Config } from '../../config.ts';
import type { Logger } from '../../log.ts';
import { checkNode } from './check-node.ts';
import { prepareStores } from './prepare-stores.ts';

/** Migrates the stores, checks the chain of the node, and rebuilds the projections that need it. */
export async function prepare(
  { log, say, signal }: { log: Logger; say: (line: string) => void; signal: AbortSignal },
  config: Config,
  isExternalNode: boolean,
): Promise<void> {
  const { outdated } = await prepareStores(config, log, signal);
  const chain = await checkNode(config, log);
  if (isExternalNode) say(`  ${'Starknet'.padEnd(12)} ${chain}`);
  if (outdated.length === 0) return;
  // No `tds rebuild` could run before this: the embedded stores live as long as this process.
  const { rebuildOutdated } = await import('../cli/rebuild.ts');
  await rebuildOutdated(config, outdated, log, say);
}
