import { joinU256, toFelt, U128 } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { RawEvent } from '../messages/chain-blocks.ts';
import type { TokenStandard } from '../messages/common.ts';

/**
 * All known shapes of token events: which event, how many keys and data felts, and where each field is. Field names do not
 * matter (contracts disagree on them), nor does the token (one token may use several shapes).
 *
 * - At most one row matches an event; an event that matches none is malformed.
 * - Whether the number of a `Transfer` is an amount or a token id depends on the contract's standard (`meanings`).
 * - An amount or id of two felts is a low and a high half, each below 2^128 (SNIP-13). The bound also prevents an address,
 *   which is a hash and far larger, from being read as a half.
 */

export type EventShape = Pick<RawEvent, 'keys' | 'data'>;

/** One token amount or NFT that an event transfers. */
export interface Item {
  readonly kind: TokenStandard;
  readonly amount: bigint;
  readonly tokenId: bigint | null;
}

/** Why an event cannot be decoded. A value, not an exception: contracts may emit anything. */
export interface Malformed {
  readonly reason: string;
}

interface FieldRef {
  readonly part: keyof EventShape;
  readonly index: number;
}
type NumberReader = (event: EventShape) => bigint | Malformed;
type ItemsReader = (event: EventShape, standard: TokenStandard) => readonly Item[] | Malformed;

/** `keys[0]` is the selector. */
const key = (index: number): FieldRef => ({ part: 'keys', index });
const data = (index: number): FieldRef => ({ part: 'data', index });

export const layouts = [
  // OpenZeppelin's ERC-20 from 0.7.0, USDC
  { event: 'Transfer', keys: 3, data: 2, from: key(1), to: key(2), items: transferred(u256(data(0))) },
  // Cairo 0 ERC-20 and ERC-721, StarkGate
  { event: 'Transfer', keys: 1, data: 4, from: data(0), to: data(1), items: transferred(u256(data(2))) },
  // OpenZeppelin's ERC-721 from 0.7.0, ERC-20 with everything keyed
  { event: 'Transfer', keys: 5, data: 0, from: key(1), to: key(2), items: transferred(u256(key(3))) },
  { event: 'Transfer', keys: 3, data: 1, from: key(1), to: key(2), items: transferred(felt(data(0))) },
  { event: 'Transfer', keys: 1, data: 3, from: data(0), to: data(1), items: transferred(felt(data(2))) },
  { event: 'Transfer', keys: 4, data: 0, from: key(1), to: key(2), items: transferred(felt(key(3))) },
  { event: 'Transfer', keys: 3, data: 0, from: key(1), to: key(2), items: withoutNumber },
  // operator, from, to in the keys
  {
    event: 'TransferSingle',
    keys: 4,
    data: 4,
    from: key(2),
    to: key(3),
    items: erc1155Item(u256(data(0)), u256(data(2))),
  },
  {
    event: 'TransferSingle',
    keys: 4,
    data: 2,
    from: key(2),
    to: key(3),
    items: erc1155Item(felt(data(0)), felt(data(1))),
  },
  { event: 'TransferBatch', keys: 4, data: 'spans', from: key(2), to: key(3), items: spans(data(0)) },
  // legacy: operator, from, to first in the data
  {
    event: 'TransferSingle',
    keys: 1,
    data: 7,
    from: data(1),
    to: data(2),
    items: erc1155Item(u256(data(3)), u256(data(5))),
  },
  { event: 'TransferBatch', keys: 1, data: 'spans', from: data(1), to: data(2), items: spans(data(3)) },
] as const satisfies readonly {
  event: string;
  keys: number;
  /** `spans`: variable; checked while the spans are decoded. */
  data: number | 'spans';
  from: FieldRef;
  to: FieldRef;
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
 * Meaning of the number of a `Transfer`, by the emitting contract's standard. ERC-1155 defines no `Transfer`, so there the
 * number may be an id or an amount: unknown.
 */
const meanings: Readonly<Record<TokenStandard, (number: bigint) => Item>> = {
  erc20: (number) => ({ kind: 'erc20', amount: number, tokenId: null }),
  erc721: (number) => ({ kind: 'erc721', amount: 1n, tokenId: number }),
  erc1155: (number) => ({ kind: 'unknown', amount: number, tokenId: null }),
  unknown: (number) => ({ kind: 'unknown', amount: number, tokenId: null }),
};

/** A `Transfer` with a number: an amount or a token id. */
function transferred(number: NumberReader): ItemsReader {
  return (event, standard) => {
    const value = number(event);
    return typeof value === 'bigint' ? [meanings[standard](value)] : value;
  };
}

/** A `Transfer` without a number transfers 0; for an ERC-721 the token id would be missing. */
function withoutNumber(_event: EventShape, standard: TokenStandard): readonly Item[] | Malformed {
  return standard === 'erc721'
    ? { reason: 'an ERC-721 Transfer without a token id' }
    : [meanings[standard](0n)];
}

/** Id and value of an ERC-1155 event. The event itself names the standard, however the contract is classified. */
function erc1155Item(id: NumberReader, value: NumberReader): ItemsReader {
  return (event) => {
    const tokenId = id(event);
    if (typeof tokenId !== 'bigint') return tokenId;
    const amount = value(event);
    if (typeof amount !== 'bigint') return amount;
    return [{ kind: 'erc1155', amount, tokenId }];
  };
}

/** `Span<u256>` of ids, then of values: each a length, then low and high half of every entry. Nothing may follow. */
function spans(start: FieldRef): ItemsReader {
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
      const entry = erc1155Item(u256(nth(start, 1 + 2 * n)), u256(nth(middle, 1 + 2 * n)))(event, standard);
      if ('reason' in entry) return entry;
      items.push(...entry);
    }
    return items;
  };
}

/** The length of a span of u256, checked against the felts that follow. */
function spanLength(event: EventShape, ref: FieldRef): number | Malformed {
  const length = event[ref.part][ref.index];
  if (length === undefined) return { reason: `the batch ends before the length at ${nameOf(ref)}` };
  const room = Math.floor((event[ref.part].length - ref.index - 1) / 2);
  const wanted = BigInt(length);
  return wanted <= BigInt(room)
    ? Number(wanted)
    : { reason: `the length at ${nameOf(ref)} is ${wanted}, but there is room for ${room}` };
}

/** Low half, then high half. */
function u256(low: FieldRef): NumberReader {
  const high = nth(low, 1);
  return (event) => {
    const value = joinU256(feltAt(event, low), feltAt(event, high));
    if (value !== null) return value;
    const wrong = BigInt(feltAt(event, low)) >= U128 ? low : high;
    return { reason: `${nameOf(wrong)} should be half of a u256, but is 2^128 or more` };
  };
}

function felt(ref: FieldRef): NumberReader {
  return (event) => BigInt(feltAt(event, ref));
}

function nth(ref: FieldRef, distance: number): FieldRef {
  return { part: ref.part, index: ref.index + distance };
}

function nameOf(ref: FieldRef): string {
  return `${ref.part}[${ref.index}]`;
}

/** The felt at a field of an event that matches the layout's lengths; throws if the layout is wrong. */
export function feltAt(event: EventShape, ref: FieldRef): Felt {
  const word = event[ref.part][ref.index];
  if (word === undefined) throw new RangeError(`a layout reads ${nameOf(ref)} past the event's end`);
  return word;
}
