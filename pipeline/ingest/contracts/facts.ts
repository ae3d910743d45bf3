import type { ContractsMap } from '../../../schemas/messages/chain-blocks.ts';
import type { Lease } from '../lease.ts';
import type { IngestDeps, Plan, PublishedBlock } from '../ports.ts';

/** What stands in for recording where blocks are final: the facts about contracts that a batch is published with. */
export interface Plans {
  /**
   * The blocks as they are to be published from `cursor` on: what an attempt that was cut short may have published of them
   * counts. Unless they are recorded, the facts they go out with are written down first.
   */
  settle(
    blocks: readonly PublishedBlock[],
    cursor: number,
    unrecorded?: boolean,
  ): Promise<readonly PublishedBlock[]>;
}

export function createPlans({ store }: Pick<IngestDeps, 'store'>, lease: Lease, stored: Plan): Plans {
  let plan = stored;
  return {
    async settle(blocks, cursor, unrecorded = true) {
      const pending = plan.to >= cursor ? plan : { to: -1, facts: {} };
      const facts: ContractsMap = { ...mergeFacts(blocks), ...pending.facts };
      if (unrecorded) {
        plan = { to: Math.max(pending.to, blocks.at(-1)?.block.height ?? -1), facts };
        await store.plan(lease, plan);
      }
      return blocks.map(({ block, contracts }) => ({ block, contracts: pick(facts, contracts) }));
    },
  };
}

function mergeFacts(blocks: readonly PublishedBlock[]): ContractsMap {
  const facts: ContractsMap = {};
  for (const { contracts } of blocks) Object.assign(facts, contracts);
  return facts;
}

function pick(facts: ContractsMap, contracts: ContractsMap): ContractsMap {
  const known = new Map(Object.entries(facts));
  return Object.fromEntries(
    Object.entries(contracts).map(([contract, own]) => [contract, known.get(contract) ?? own]),
  );
}
