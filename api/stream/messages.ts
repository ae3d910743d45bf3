import type { LinkedBlock } from '../../projections/indexed-blocks/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { isoSeconds } from '../http/times.ts';
import { isMatch } from './blocks.ts';
import type { StreamFilter, StreamedBlock, StreamedTransfer } from './blocks.ts';
import { encodeCursor } from './cursor.ts';
import type { MessageType, PlaceInBlock, StreamPosition } from './cursor.ts';
import { TRANSFERS } from './tail.ts';
import type { TailView } from './tail.ts';

/** A message as it is sent; `data` is JSON. */
export interface Message {
  readonly type: MessageType;
  readonly cursor: string;
  readonly data: string;
}

/** The next messages of a stream, and its position behind them. */
export interface Given {
  readonly messages: readonly Message[];
  readonly position: StreamPosition;
}

/**
 * The messages of the blocks at a position and after it, each the child of the previous one; then of the height that is
 * accepted on L1, where the position is behind it.
 */
export function messagesOf(
  start: StreamPosition,
  blocks: readonly StreamedBlock[],
  l1Height: number | null,
  digest: Buffer,
): Given {
  let position = start;
  const messages: Message[] = [];
  const give = (type: MessageType, at: StreamPosition, mark: number, json: () => string): void => {
    position = at;
    messages.push({
      type,
      cursor: encodeCursor(at, digest, type, mark),
      // Made when it is sent: all texts of a read would outlive collections of short-lived objects.
      get data() {
        return json();
      },
    });
  };
  const { final, floor } = start;
  for (const { block, transfers } of blocks) {
    const { height, hash, seq } = block;
    const last = { height, hash };
    const { within } = position;
    const isOnL1 = height <= (l1Height ?? -1);
    for (const transfer of transfers) {
      const place = { position: transfer.row.position, item: transfer.row.item };
      if (within !== null && !isAfter(place, within)) continue;
      const at = { last, within: place, next: height, final, floor };
      give('transfer', at, seq, () => transfer.json(isOnL1));
    }
    const after = { last, within: null, next: height + 1, final, floor };
    give('block', after, seq, () => blockJson(block, isOnL1));
  }
  if (l1Height !== null && position.next > l1Height && (final === null || final < l1Height))
    give('final', { ...position, final: l1Height }, 0, () => JSON.stringify({ height: l1Height }));
  return { messages, position };
}

/**
 * Most messages that are shared of one view: twice the transfers that it holds. A bound, because clients choose the
 * positions.
 */
const MAX_SHARED = 2 * TRANSFERS;

interface SharedMessages {
  readonly byStart: Map<string, Given>;
  /** Messages and positions. */
  size: number;
}

const sharedByView = new WeakMap<TailView, SharedMessages>();

/**
 * The same for blocks that a view holds, of which only matching transfers are given. Streams with the same filters at the same
 * position get the same messages, which are made once, as long as few are shared.
 */
export function sharedMessagesOf(
  start: StreamPosition,
  { view, held, filter }: { view: TailView; held: readonly StreamedBlock[]; filter: StreamFilter },
  digest: Buffer,
): Given {
  const shared = sharedByView.get(view) ?? { byStart: new Map<string, Given>(), size: 0 };
  sharedByView.set(view, shared);
  const key = encodeCursor(start, digest, 'block', 0);
  const known = shared.byStart.get(key);
  if (known !== undefined) return known;
  const blocks = held.map((one) => ({ block: one.block, transfers: matchesIn(one, filter) }));
  const given = messagesOf(start, blocks, view.l1Height, digest);
  const size = shared.size + given.messages.length + 1;
  if (size > MAX_SHARED) return given;
  shared.byStart.set(key, given);
  shared.size = size;
  return given;
}

const feltsOfBlocks = new WeakMap<StreamedBlock, ReadonlySet<Felt>>();

/** Most filters match nothing in a block: that is seen without looking at its transfers. */
function matchesIn(block: StreamedBlock, filter: StreamFilter): readonly StreamedTransfer[] {
  const { transfers } = block;
  const felts =
    feltsOfBlocks.get(block) ??
    new Set(transfers.flatMap(({ row: { token, from, to } }) => [token, from, to]));
  feltsOfBlocks.set(block, felts);
  if (Object.values(filter).some((felt) => !felts.has(felt))) return [];
  return transfers.filter(({ row }) => isMatch(filter, row));
}

function blockJson({ height, hash, timestamp }: LinkedBlock, isOnL1: boolean): string {
  const finality = isOnL1 ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2';
  return JSON.stringify({ height, hash, timestamp: isoSeconds(timestamp), finality });
}

function isAfter(row: PlaceInBlock, place: PlaceInBlock): boolean {
  return row.position > place.position || (row.position === place.position && row.item > place.item);
}
