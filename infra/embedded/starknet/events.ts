import type { SimBlock } from './blocks.ts';
import type { RawEvent } from './layouts.ts';
import type { Ledger } from './ledger.ts';
import type { BlockId, EventFilter } from './params.ts';
import { rpcErrors } from './rpc-errors.ts';

const MAX_PAGE = 1024;
const MAX_KEYS = 16;

export type EventPage = { events: Record<string, unknown>[]; continuation_token?: string };

/** `starknet_getEvents`: a page may be empty and still have a token, when `scan` blocks held nothing of interest. */
export function getEvents(
  ledger: Ledger,
  filter: EventFilter,
  heightOf: (id: BlockId) => number,
  limits: { scan: number; indexes: boolean },
): EventPage {
  if (filter.chunk_size > MAX_PAGE) throw rpcErrors.pageTooBig();
  if ((filter.keys?.length ?? 0) > MAX_KEYS) throw rpcErrors.tooManyKeys();
  const first = filter.from_block === undefined ? 0 : clamped(filter.from_block, heightOf);
  const last = Math.min(
    filter.to_block === undefined ? Infinity : clamped(filter.to_block, heightOf),
    ledger.head(),
  );
  const start =
    filter.continuation_token === undefined
      ? { height: first, event: 0 }
      : readToken(filter.continuation_token);
  if (start.height < first) throw rpcErrors.badToken();

  const matches = matcher(filter);
  const events: Record<string, unknown>[] = [];
  for (let height = start.height, scanned = 0; height <= last; height++, scanned++) {
    if (scanned === limits.scan) return { events, continuation_token: `${height}-0` };
    const block = ledger.at(height);
    if (block === null) continue;
    let place = 0;
    for (const [txIndex, tx] of block.txs.entries()) {
      for (const [eventIndex, event] of tx.events.entries()) {
        const here = place++;
        if (height === start.height && here < start.event) continue;
        if (!matches(event)) continue;
        if (events.length === filter.chunk_size) return { events, continuation_token: `${height}-${here}` };
        const indexes = limits.indexes ? { transaction_index: txIndex, event_index: eventIndex } : {};
        events.push(emitted(block, tx.hash, event, indexes));
      }
    }
  }
  return { events };
}

/** Nodes take heights above the head for the head here. */
function clamped(id: BlockId, heightOf: (id: BlockId) => number): number {
  return typeof id === 'object' && 'block_number' in id ? id.block_number : heightOf(id);
}

function readToken(token: string): { height: number; event: number } {
  const found = /^(\d{1,15})-(\d{1,9})$/.exec(token);
  if (found === null) throw rpcErrors.badToken();
  return { height: Number(found[1]), event: Number(found[2]) };
}

function matcher({ address, keys }: EventFilter): (event: RawEvent) => boolean {
  const addresses = address === undefined ? null : new Set(Array.isArray(address) ? address : [address]);
  const wanted = (keys ?? []).map((some) => new Set(some));
  return (event) => {
    if (addresses !== null && addresses.size > 0 && !addresses.has(BigInt(event.from_address))) return false;
    return wanted.every((some, i) => {
      const key = event.keys[i];
      return some.size === 0 || (key !== undefined && some.has(BigInt(key)));
    });
  };
}

function emitted(block: SimBlock, txHash: string, event: RawEvent, indexes: Record<string, number>) {
  return {
    ...event,
    block_hash: block.hash,
    block_number: block.height,
    transaction_hash: txHash,
    ...indexes,
  };
}
