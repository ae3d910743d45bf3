import type { RawEvent } from './layouts.ts';
import { heightOf, type Ledger } from './ledger.ts';
import { rpcErrors, type BlockId, type EventFilter } from './protocol.ts';

const MAX_PAGE = 1024;
const MAX_KEYS = 16;

type EventPage = { events: Record<string, unknown>[]; continuation_token?: string };

/** `starknet_getEvents`. A page may be empty and still have a token: none of the `scan` blocks held a match. */
export function getEvents(ledger: Ledger, filter: EventFilter, scan: number): EventPage {
  if (filter.chunk_size > MAX_PAGE) throw rpcErrors.pageTooBig();
  if ((filter.keys?.length ?? 0) > MAX_KEYS) throw rpcErrors.tooManyKeys();
  const first = boundOf(ledger, filter.from_block, 0);
  const last = Math.min(boundOf(ledger, filter.to_block, Infinity), ledger.head());
  const start =
    filter.continuation_token === undefined
      ? { height: first, event: 0 }
      : readToken(filter.continuation_token);
  if (start.height < first) throw rpcErrors.badToken();

  const matches = matcher(filter);
  const events: Record<string, unknown>[] = [];
  for (let height = start.height, scanned = 0; height <= last; height++, scanned++) {
    if (scanned === scan) return { events, continuation_token: `${height}-0` };
    const block = ledger.at(height);
    if (block === null) continue;
    let position = 0;
    for (const [txIndex, tx] of block.txs.entries()) {
      for (const [eventIndex, event] of tx.events.entries()) {
        const here = position++;
        if (height === start.height && here < start.event) continue;
        if (!matches(event)) continue;
        if (events.length === filter.chunk_size) return { events, continuation_token: `${height}-${here}` };
        events.push({
          ...event,
          block_hash: block.hash,
          block_number: block.height,
          transaction_hash: tx.hash,
          transaction_index: txIndex,
          event_index: eventIndex,
        });
      }
    }
  }
  return { events };
}

/** Unlike elsewhere, nodes accept heights above the head here. */
function boundOf(ledger: Ledger, id: BlockId | undefined, absent: number): number {
  if (id === undefined) return absent;
  return typeof id === 'object' && 'block_number' in id ? id.block_number : heightOf(ledger, id);
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
