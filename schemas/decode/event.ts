import type { Felt } from '../felt.ts';
import type { TokenStandard } from '../messages/common.ts';
import { layouts, selectors, feltAt } from './layouts.ts';
import type { EventShape, Item, Layout, Malformed } from './layouts.ts';

interface DecodedEvent {
  readonly from: Felt;
  readonly to: Felt;
  /** Empty for an empty batch. */
  readonly items: readonly Item[];
}

interface Family {
  readonly name: string;
  readonly layouts: readonly Layout[];
}

const families: ReadonlyMap<string | undefined, Family> = new Map(
  Object.entries(selectors).map(([name, selector]) => [
    selector,
    { name, layouts: layouts.filter((layout) => layout.event === name) },
  ]),
);

export function isMalformed(outcome: DecodedEvent | Malformed): outcome is Malformed {
  return 'reason' in outcome;
}

/**
 * Decodes one event; `null` if it is not a token event: neither of its first two keys is a token selector. (An event may
 * have no keys at all, as in mainnet block 2500.)
 *
 * An event of a component that is not `#[flat]` has the variant's selector as an additional first key. If both of the first
 * two keys are token selectors, the event is decoded only if exactly one of the two interpretations is valid.
 */
export function decodeEvent(event: EventShape, standard: TokenStandard): DecodedEvent | Malformed | null {
  const flat = families.get(event.keys[0]);
  const nested = families.get(event.keys[1]);
  if (nested === undefined) return flat === undefined ? null : decodeAs(flat, event, standard);

  const inner = decodeAs(nested, { keys: event.keys.slice(1), data: event.data }, standard);
  if (flat === undefined) {
    return isMalformed(inner) ? { reason: `after the key of its variant: ${inner.reason}` } : inner;
  }
  const outer = decodeAs(flat, event, standard);
  if (isMalformed(inner)) return outer;
  if (isMalformed(outer)) return inner;
  return { reason: 'ambiguous: its first two keys are token selectors, and both interpretations are valid' };
}

/** Whether an event has the selector and the number of keys and data felts of a token event. */
export function isTokenShaped(event: EventShape): boolean {
  return (
    layoutOf(families.get(event.keys[0]), event.keys.length, event.data.length) !== undefined ||
    layoutOf(families.get(event.keys[1]), event.keys.length - 1, event.data.length) !== undefined
  );
}

function decodeAs(family: Family, event: EventShape, standard: TokenStandard): DecodedEvent | Malformed {
  const layout = layoutOf(family, event.keys.length, event.data.length);
  if (layout === undefined) {
    const shape = `${event.keys.length} keys and ${event.data.length} data felts`;
    return { reason: `no layout of ${family.name} has ${shape}` };
  }
  const items = layout.items(event, standard);
  if ('reason' in items) return items;
  return { from: feltAt(event, layout.from), to: feltAt(event, layout.to), items };
}

function layoutOf(family: Family | undefined, keys: number, data: number): Layout | undefined {
  return family?.layouts.find(
    (layout) => layout.keys === keys && (layout.data === data || layout.data === 'spans'),
  );
}
