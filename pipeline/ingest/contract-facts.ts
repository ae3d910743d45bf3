import { tokenContracts } from '../../schemas/decode/index.ts';
import type { BlockBody, ContractsMap } from '../../schemas/messages/chain-blocks.ts';
import type { CallOptions } from '../node/types.ts';
import type { IngestDeps, Lease, StoredPlan, PublishedBlock } from './ports.ts';

/** The contracts map of a block: the standard of every contract with a token-shaped event. */
export async function resolveContracts(
  { standards }: Pick<IngestDeps, 'standards'>,
  block: BlockBody,
  options: Pick<CallOptions, 'priority'> = {},
): Promise<ContractsMap> {
  const contracts = tokenContracts(block);
  if (contracts.length === 0) return {};
  const facts = await standards.resolve(contracts, { height: block.height, hash: block.hash }, options);
  const entries = contracts.map((contract) => {
    const found = facts.get(contract);
    if (found === undefined) throw new Error(`no standard resolved for contract ${contract}`);
    return [contract, found] as const;
  });
  return Object.fromEntries(entries);
}

export type PublishPlan = ReturnType<typeof createPublishPlan>;

/** Makes retries publish a block with the contract facts of the first attempt. */
export function createPublishPlan({ store }: Pick<IngestDeps, 'store'>, lease: Lease, stored: StoredPlan) {
  let plan = stored;
  return {
    /** The highest block that may be in the log without a record; only those at or above the cursor are in doubt. */
    publishedTo: (): number => plan.to,
    /**
     * Returns the blocks with the facts to publish them with: those of an interrupted attempt at or above `cursor` win over
     * newer ones. The facts of unrecorded blocks are stored first.
     */
    async apply(
      blocks: readonly PublishedBlock[],
      cursor: number,
      { recorded } = { recorded: false },
    ): Promise<readonly PublishedBlock[]> {
      const pending = plan.to >= cursor ? plan : { to: -1, facts: {} };
      const latest: ContractsMap = Object.fromEntries(
        blocks.flatMap(({ contracts }) => Object.entries(contracts)),
      );
      const facts: ContractsMap = { ...latest, ...pending.facts };
      if (!recorded) {
        plan = { to: Math.max(pending.to, blocks.at(-1)?.block.height ?? -1), facts };
        await store.plan(lease, plan);
      }
      const factsOf = new Map(Object.entries(facts));
      return blocks.map(({ block, contracts }) => ({
        block,
        contracts: Object.fromEntries(
          Object.entries(contracts).map(([contract, own]) => [contract, factsOf.get(contract) ?? own]),
        ),
      }));
    },
  };
}
