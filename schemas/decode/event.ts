import type { Felt } from '../felt.ts';
import type { TokenStandard } from '../messages/common.ts';
import { layouts, selectors, wordAt } from './layouts.ts';
import type { EventShape, Item, Layout, Malformed } from './layouts.ts';

interface Reading {
  readonly from: Felt;
  readonly to: Felt;
  /** Empty for a batch of none. */
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

export function isMalformed(outcome: Reading | Malformed): outcome is Malformed {
  return 'reason' in outcome;
}

/**
 * Reads one event; `null` when it is no token event: neither of its first two keys is a token selector. (An event without
 * keys says nothing of what it is; mainnet block 2500 has one.)
 *
 * An event of a component that is not `#[flat]` has the variant's selector before its own, whatever the variant is called:
 * without its first key it is an event like any other. Where the first two keys are both token selectors, the event may be
 * either; it is read when exactly one of the two readings holds.
 */
export function readEvent(event: EventShape, standard: TokenStandard): Reading | Malformed | null {
  const flat = families.get(event.keys[0]);
  const nested = families.get(event.keys[1]);
  if (nested === undefined) return flat === undefined ? null : readAs(flat, event, standard);

  const inner = readAs(nested, { keys: event.keys.slice(1), data: event.data }, standard);
  if (flat === undefined) {
    return isMalformed(inner) ? { reason: `behind its variant's key: ${inner.reason}` } : inner;
  }
  const outer = readAs(flat, event, standard);
  if (isMalformed(inner)) return outer;
  if (isMalformed(outer)) return inner;
  return { reason: 'its first two keys are token selectors, and it can be read by either' };
}

/** Tells whether an event has the selector and the shape of a token event, by counting only. */
export function isTokenShaped(event: EventShape): boolean {
  return (
    layoutOf(families.get(event.keys[0]), event.keys.length, event.data.length) !== undefined ||
    layoutOf(families.get(event.keys[1]), event.keys.length - 1, event.data.length) !== undefined
  );
}

function readAs(family: Family, event: EventShape, standard: TokenStandard): Reading | Malformed {
  const layout = layoutOf(family, event.keys.length, event.data.length);
  if (layout === undefined) {
    const shape = `${event.keys.length} keys and ${event.data.length} data felts`;
    return { reason: `no layout of ${family.name} has ${shape}` };
  }
  const items = layout.items(event, standard);
  if ('reason' in items) return items;
  return { from: wordAt(event, layout.from), to: wordAt(event, layout.to), items };
}

function layoutOf(family: Family | undefined, keys: number, data: number): Layout | undefined {
  return family?.layouts.find(
    (layout) => layout.keys === keys && (layout.data === data || layout.data === 'spans'),
  );
}
