import { hexOf, u256 } from './hash.ts';
import { selectors } from './selectors.ts';

export type RawEvent = { from_address: string; keys: string[]; data: string[] };

/** A transfer as intended, before it is encoded as an event. */
export type Movement = {
  from: bigint;
  to: bigint;
  /** The caller, which ERC-1155 events contain. */
  operator: bigint;
  /** One pair unless it is a batch. `id` is null for layouts without an id. */
  items: readonly { id: bigint | null; amount: bigint }[];
};

/**
 * The layouts of token events, named by the number of keys and data felts (`<keys>/<data>`). Comments in `encoders` name
 * contracts that use them.
 */
export const layoutNames = [
  'erc20:3/2',
  'erc20:1/4',
  'erc20:5/0',
  'erc20:3/1',
  'erc20:1/3',
  'erc20:4/0',
  'erc20:3/0',
  'erc20:component',
  'erc20:component-data',
  'erc721:5/0',
  'erc721:1/4',
  'erc721:1/3',
  'erc721:4/0',
  'erc721:component',
  'erc1155:4/4',
  'erc1155:1/7',
  'erc1155:4/2',
  'erc1155:component',
  'erc1155:batch',
  'erc1155:legacy-batch',
  'erc1155:component-batch',
] as const;
export type Layout = (typeof layoutNames)[number];

type Shape = { keys: string[]; data: string[] };
type Encoder = (move: Movement, from: string, to: string) => Shape;

const T = selectors.Transfer;
const single = selectors.TransferSingle;
const batch = selectors.TransferBatch;

/** The number in a Transfer event: the token id of an NFT, otherwise the amount. */
function number(move: Movement): bigint {
  const first = move.items[0];
  if (first === undefined) return 0n;
  return first.id ?? first.amount;
}

function pair(move: Movement): { id: bigint; amount: bigint } {
  const first = move.items[0];
  return { id: first?.id ?? 0n, amount: first?.amount ?? 0n };
}

function idAndAmount(move: Movement): string[] {
  const { id, amount } = pair(move);
  return [...u256(id), ...u256(amount)];
}

/** Two Span<u256>, ids and amounts: the length, then low and high half of each. */
function spans(move: Movement): string[] {
  const count = hexOf(BigInt(move.items.length));
  return [
    count,
    ...move.items.flatMap(({ id }) => u256(id ?? 0n)),
    count,
    ...move.items.flatMap(({ amount }) => u256(amount)),
  ];
}

const keyedPair: Encoder = (move, from, to) => ({ keys: [T, from, to], data: u256(number(move)) });
const dataPair: Encoder = (move, from, to) => ({ keys: [T], data: [from, to, ...u256(number(move))] });
const allKeys: Encoder = (move, from, to) => ({ keys: [T, from, to, ...u256(number(move))], data: [] });
const feltData: Encoder = (move, from, to) => ({ keys: [T], data: [from, to, hexOf(number(move))] });
const feltKey: Encoder = (move, from, to) => ({ keys: [T, from, to, hexOf(number(move))], data: [] });

/** An event of a component that is not `#[flat]`: the selector of the variant precedes that of the event. */
function nested(variant: string, inner: Encoder): Encoder {
  return (move, from, to) => {
    const shape = inner(move, from, to);
    return { keys: [variant, ...shape.keys], data: shape.data };
  };
}

const singleKeyed: Encoder = (move, from, to) => ({
  keys: [single, hexOf(move.operator), from, to],
  data: idAndAmount(move),
});
const batchKeyed: Encoder = (move, from, to) => ({
  keys: [batch, hexOf(move.operator), from, to],
  data: spans(move),
});

const encoders: Record<Layout, Encoder> = {
  'erc20:3/2': keyedPair, // OpenZeppelin from 0.7.0, USDC
  'erc20:1/4': dataPair, // Cairo 0, StarkGate
  'erc20:5/0': allKeys,
  'erc20:3/1': (move, from, to) => ({ keys: [T, from, to], data: [hexOf(number(move))] }),
  'erc20:1/3': feltData,
  'erc20:4/0': feltKey,
  'erc20:3/0': (_move, from, to) => ({ keys: [T, from, to], data: [] }), // no amount: zero
  'erc20:component': nested(selectors.ERC20Event, keyedPair),
  'erc20:component-data': nested(selectors.ERC20Event, dataPair),
  'erc721:5/0': allKeys, // OpenZeppelin from 0.7.0
  'erc721:1/4': dataPair, // Cairo 0
  'erc721:1/3': feltData,
  'erc721:4/0': feltKey,
  'erc721:component': nested(selectors.ERC721Event, allKeys),
  'erc1155:4/4': singleKeyed,
  'erc1155:1/7': (move, from, to) => ({
    keys: [single],
    data: [hexOf(move.operator), from, to, ...idAndAmount(move)],
  }),
  'erc1155:4/2': (move, from, to) => ({
    keys: [single, hexOf(move.operator), from, to],
    data: [hexOf(pair(move).id), hexOf(pair(move).amount)],
  }),
  'erc1155:component': nested(selectors.ERC1155Event, singleKeyed),
  'erc1155:batch': batchKeyed,
  'erc1155:legacy-batch': (move, from, to) => ({
    keys: [batch],
    data: [hexOf(move.operator), from, to, ...spans(move)],
  }),
  'erc1155:component-batch': nested(selectors.ERC1155Event, batchKeyed),
};

export function encodeEvent(layout: Layout, tokenHex: string, move: Movement): RawEvent {
  const shape = encoders[layout](move, hexOf(move.from), hexOf(move.to));
  return { from_address: tokenHex, keys: shape.keys, data: shape.data };
}
