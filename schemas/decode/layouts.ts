import { joinU256, toFelt, U128 } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { RawEvent } from '../messages/chain-blocks.ts';
import type { TokenStandard } from '../messages/common.ts';

/**
 * Every shape a token event has been seen in, as a table: which event, how many keys and data felts, and where each field
 * is. Names never matter (contracts disagree on them), nor does the token (one token may alternate between shapes).
 *
 * - An event is read by exactly one row or by none; a shape that is in no row is malformed, never stretched to fit.
 * - Whether the number of a `Transfer` is an amount or a token id cannot be read off the event: the contract's standard
 *   says so (`meanings`).
 * - An amount or id of two felts is low and high half, each below 2^128. That bound (SNIP-13's) also keeps an address,
 *   which is a hash and so far above it, from being taken for a half.
 */

export type EventShape = Pick<RawEvent, 'keys' | 'data'>;

/** One thing that moved. */
export interface Item {
  readonly kind: TokenStandard;
  readonly amount: bigint;
  readonly tokenId: bigint | null;
}

/** Why an event cannot be read: a value, not an exception, as contracts may emit what they like. */
export interface Malformed {
  readonly reason: string;
}

interface Place {
  readonly part: keyof EventShape;
  readonly index: number;
}
type NumberReader = (event: EventShape) => bigint | Malformed;
type ItemsReader = (event: EventShape, standard: TokenStandard) => readonly Item[] | Malformed;

/** `keys[0]` is the selector. */
const key = (index: number): Place => ({ part: 'keys', index });
const data = (index: number): Place => ({ part: 'data', index });

export const layouts = [
  // OpenZeppelin's ERC-20 from 0.7.0, USDC
  { event: 'Transfer', keys: 3, data: 2, from: key(1), to: key(2), items: moved(u256(data(0))) },
  // Cairo 0 ERC-20 and ERC-721, StarkGate
  { event: 'Transfer', keys: 1, data: 4, from: data(0), to: data(1), items: moved(u256(data(2))) },
  // OpenZeppelin's ERC-721 from 0.7.0, ERC-20 with everything keyed
  { event: 'Transfer', keys: 5, data: 0, from: key(1), to: key(2), items: moved(u256(key(3))) },
  { event: 'Transfer', keys: 3, data: 1, from: key(1), to: key(2), items: moved(felt(data(0))) },
  { event: 'Transfer', keys: 1, data: 3, from: data(0), to: data(1), items: moved(felt(data(2))) },
  { event: 'Transfer', keys: 4, data: 0, from: key(1), to: key(2), items: moved(felt(key(3))) },
  { event: 'Transfer', keys: 3, data: 0, from: key(1), to: key(2), items: movedNothing },
  // operator, from, to in the keys
  {
    event: 'TransferSingle',
    keys: 4,
    data: 4,
    from: key(2),
    to: key(3),
    items: pair(u256(data(0)), u256(data(2))),
  },
  {
    event: 'TransferSingle',
    keys: 4,
    data: 2,
    from: key(2),
    to: key(3),
    items: pair(felt(data(0)), felt(data(1))),
  },
  { event: 'TransferBatch', keys: 4, data: 'spans', from: key(2), to: key(3), items: spans(data(0)) },
  // legacy: operator, from, to first in the data
  {
    event: 'TransferSingle',
    keys: 1,
    data: 7,
    from: data(1),
    to: data(2),
    items: pair(u256(data(3)), u256(data(5))),
  },
  { event: 'TransferBatch', keys: 1, data: 'spans', from: data(1), to: data(2), items: spans(data(3)) },
] as const satisfies readonly {
  event: string;
  keys: number;
  /** `spans`: as long as the spans in it say; their reader checks it. */
  data: number | 'spans';
  from: Place;
  to: Place;
  items: ItemsReader;
}[];

export type Layout = (typeof layouts)[number];
type TokenEvent = Layout['event'];

/** sn_keccak of the event's name. */
export const selectors: Readonly<Record<TokenEvent, Felt>> = {
  Transfer: toFelt(0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9n),
  TransferSingle: toFelt(0x182d859c0807ba9db63baf8b9d9fdbfeb885d820be6e206b9dab626d995c433n),
  TransferBatch: toFelt(0x2563683c757f3abe19c4b7237e2285d8993417ddffe0b54a19eb212ea574b08n),
};

/**
 * What the number of a `Transfer` is, by the standard of the contract that emitted it. An ERC-1155 contract has no
 * `Transfer` of its own, so there the number could be an id as well as an amount: undecided, like an unknown contract's.
 */
const meanings: Readonly<Record<TokenStandard, (number: bigint) => Item>> = {
  erc20: (number) => ({ kind: 'erc20', amount: number, tokenId: null }),
  erc721: (number) => ({ kind: 'erc721', amount: 1n, tokenId: number }),
  erc1155: (number) => ({ kind: 'unknown', amount: number, tokenId: null }),
  unknown: (number) => ({ kind: 'unknown', amount: number, tokenId: null }),
};

/** The number of a `Transfer`. */
function moved(number: NumberReader): ItemsReader {
  return (event, standard) => {
    const value = number(event);
    return typeof value === 'bigint' ? [meanings[standard](value)] : value;
  };
}

/** A `Transfer` that leaves its number out moves 0; but which ERC-721 token moved, nobody can tell. */
function movedNothing(_event: EventShape, standard: TokenStandard): readonly Item[] | Malformed {
  return standard === 'erc721'
    ? { reason: 'an ERC-721 Transfer without a token id' }
    : [meanings[standard](0n)];
}

/** ERC-1155's id and value. These events name the standard themselves, whatever else the contract is taken for. */
function pair(id: NumberReader, value: NumberReader): ItemsReader {
  return (event) => {
    const tokenId = id(event);
    if (typeof tokenId !== 'bigint') return tokenId;
    const amount = value(event);
    if (typeof amount !== 'bigint') return amount;
    return [{ kind: 'erc1155', amount, tokenId }];
  };
}

/** `Span<u256>` of ids, then of values: each its length, then low and high of every entry. Nothing may follow. */
function spans(start: Place): ItemsReader {
  return (event, standard) => {
    const ids = spanLength(event, start);
    if (typeof ids !== 'number') return ids;
    const middle = { part: start.part, index: start.index + 1 + 2 * ids };
    const values = spanLength(event, middle);
    if (typeof values !== 'number') return values;
    if (ids !== values) return { reason: `a batch of ${ids} ids and ${values} values` };
    const surplus = event[start.part].length - (middle.index + 1 + 2 * values);
    if (surplus !== 0) return { reason: `${surplus} felts follow the batch's values` };

    const items: Item[] = [];
    for (let n = 0; n < ids; n += 1) {
      const entry = pair(u256(nth(start, 1 + 2 * n)), u256(nth(middle, 1 + 2 * n)))(event, standard);
      if ('reason' in entry) return entry;
      items.push(...entry);
    }
    return items;
  };
}

/** The length at the head of a span of u256, checked against what is there. */
function spanLength(event: EventShape, place: Place): number | Malformed {
  const length = event[place.part][place.index];
  if (length === undefined) return { reason: `the batch ends before the length at ${nameOf(place)}` };
  const room = Math.floor((event[place.part].length - place.index - 1) / 2);
  const wanted = BigInt(length);
  return wanted <= BigInt(room)
    ? Number(wanted)
    : { reason: `the length at ${nameOf(place)} is ${wanted}, but there is room for ${room}` };
}

/** Low half, then high half. */
function u256(low: Place): NumberReader {
  const high = nth(low, 1);
  return (event) => {
    const value = joinU256(wordAt(event, low), wordAt(event, high));
    if (value !== null) return value;
    const wrong = BigInt(wordAt(event, low)) >= U128 ? low : high;
    return { reason: `${nameOf(wrong)} should be half of a u256, but is 2^128 or more` };
  };
}

function felt(place: Place): NumberReader {
  return (event) => BigInt(wordAt(event, place));
}

function nth(place: Place, distance: number): Place {
  return { part: place.part, index: place.index + distance };
}

function nameOf(place: Place): string {
  return `${place.part}[${place.index}]`;
}

/** The felt at a place of a layout whose lengths were matched: its absence is a mistake in the table. */
export function wordAt(event: EventShape, place: Place): Felt {
  const word = event[place.part][place.index];
  if (word === undefined) throw new RangeError(`a layout reads ${nameOf(place)} past the event's end`);
  return word;
}
