import { z } from 'zod';

import type { TokenStandard } from '../../../schemas/messages/common.ts';

/** How many there are; `null` for an entry that does not say. */
const inputs = z
  .array(z.unknown())
  .transform((items): number | null => items.length)
  .catch(null);

/** Entries that matter of a Cairo 0 list, a Sierra list, and the `items` of a Sierra interface. The rest is passed over. */
const entry = z.discriminatedUnion('type', [
  z.object({ type: z.literal('function'), name: z.string(), inputs }),
  z.object({ type: z.literal('event'), name: z.string() }),
  z.object({ type: z.literal('interface'), items: z.array(z.unknown()) }),
]);

/** What a class offers: functions with the number of their inputs, and events by the last part of their paths. */
interface Surface {
  readonly functions: ReadonlyMap<string, number | null>;
  readonly events: ReadonlySet<string>;
}

/**
 * What a class is by its ABI; `null` when the ABI tells nothing (a proxy, a missing ABI) or tells two things at once.
 * Both naming styles count. An ABI is declared, not proven, but so is everything else a contract says of itself.
 *
 * Numbers of inputs are looked at only where they are the same in both languages (Cairo 0 lists an array as two), and
 * where they tell standards apart: `transfer` of an ERC-6909, which has many ids, takes three.
 */
export function classifyAbi(abi: readonly unknown[]): Exclude<TokenStandard, 'unknown'> | null {
  const { functions, events } = surfaceOf(abi);
  const offers = (names: readonly string[], inputs?: number): boolean =>
    names.some((name) => {
      const found = functions.get(name);
      return found !== undefined && (inputs === undefined || found === null || found === inputs);
    });

  const isErc1155 =
    offers(['balance_of_batch', 'balanceOfBatch']) ||
    (events.has('TransferSingle') &&
      offers([
        'safe_transfer_from',
        'safeTransferFrom',
        'safe_batch_transfer_from',
        'safeBatchTransferFrom',
      ]));
  const isErc721 = offers(['owner_of', 'ownerOf'], 1) && offers(['transfer_from', 'transferFrom'], 3);
  const isErc20 = offers(['transfer'], 2) && offers(['balance_of', 'balanceOf'], 1) && events.has('Transfer');

  if (isErc1155) return isErc721 || isErc20 ? null : 'erc1155';
  // Owners and decimals: a token of both kinds, whose numbers the ABI does not tell apart.
  if (isErc721) return isErc20 && offers(['decimals']) ? null : 'erc721';
  return isErc20 ? 'erc20' : null;
}

function surfaceOf(abi: readonly unknown[]): Surface {
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
          // Interfaces do not nest; an ABI that says so is not followed.
          if (!nested) read(parsed.data.items, true);
          break;
      }
    }
  };
  read(abi, false);
  return { functions, events };
}
