import { z } from 'zod';

import type { TokenStandard } from '../../../schemas/messages/common.ts';

/** Number of inputs; `null` if the entry has none listed. */
const inputs = z
  .array(z.unknown())
  .transform((items): number | null => items.length)
  .catch(null);

/** Relevant entries of a Cairo 0 list, a Sierra list, and the `items` of a Sierra interface. Others are ignored. */
const entry = z.discriminatedUnion('type', [
  z.object({ type: z.literal('function'), name: z.string(), inputs }),
  z.object({ type: z.literal('event'), name: z.string() }),
  z.object({ type: z.literal('interface'), items: z.array(z.unknown()) }),
]);

/** Functions of a class with their number of inputs, and events by the last part of their paths. */
interface AbiSummary {
  readonly functions: ReadonlyMap<string, number | null>;
  readonly events: ReadonlySet<string>;
}

/**
 * Classifies a class by its ABI, in snake_case or camelCase; `null` if the ABI is inconclusive (a proxy, a missing ABI) or
 * ambiguous. An ABI is declared, not proven, but so are all other statements of a contract about itself.
 *
 * Input counts are compared only where both languages agree (Cairo 0 lists an array as two inputs) and where they
 * distinguish standards: `transfer` of an ERC-6909, which has several ids, takes three.
 */
export function classifyAbi(abi: readonly unknown[]): Exclude<TokenStandard, 'unknown'> | null {
  const { functions, events } = summarize(abi);
  const has = (names: readonly string[], inputs?: number): boolean =>
    names.some((name) => {
      const found = functions.get(name);
      return found !== undefined && (inputs === undefined || found === null || found === inputs);
    });

  const isErc1155 =
    has(['balance_of_batch', 'balanceOfBatch']) ||
    (events.has('TransferSingle') &&
      has(['safe_transfer_from', 'safeTransferFrom', 'safe_batch_transfer_from', 'safeBatchTransferFrom']));
  const isErc721 = has(['owner_of', 'ownerOf'], 1) && has(['transfer_from', 'transferFrom'], 3);
  const isErc20 = has(['transfer'], 2) && has(['balance_of', 'balanceOf'], 1) && events.has('Transfer');

  if (isErc1155) return isErc721 || isErc20 ? null : 'erc1155';
  // With owners and decimals it is a token of both kinds, and the ABI does not say which numbers are ids.
  if (isErc721) return isErc20 && has(['decimals']) ? null : 'erc721';
  return isErc20 ? 'erc20' : null;
}

function summarize(abi: readonly unknown[]): AbiSummary {
  const functions = new Map<string, number | null>();
  const events = new Set<string>();
  const read = (items: readonly unknown[], nested: boolean): void => {
    for (const item of items) {
      const parsed = entry.safeParse(item);
      if (!parsed.success) continue;
      switch (parsed.data.type) {
        case 'function':
          functions.set(parsed.data.name, parsed.data.inputs);
          break;
        case 'event':
          // A component's event is named by its path: `openzeppelin_token::erc20::erc20::ERC20Component::Transfer`.
          events.add(parsed.data.name.split('::').at(-1) ?? '');
          break;
        case 'interface':
          // Interfaces do not nest; a nested one could recurse forever.
          if (!nested) read(parsed.data.items, true);
          break;
      }
    }
  };
  read(abi, false);
  return { functions, events };
}
