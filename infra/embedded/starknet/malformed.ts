import { hexOf, item } from './hash.ts';
import type { RawEvent } from './layouts.ts';
import { selectors } from './selectors.ts';
import { tokens } from './tokens.ts';

const TOO_BIG = hexOf(1n << 128n);

type Shape = { keys: string[]; data: string[] };

/** Token events that are malformed: a u256 half of more than 128 bits, missing data, spans of wrong length. */
const shapes: readonly { kind: string; token: string; make(from: string, to: string): Shape }[] = [
  {
    kind: 'low half out of range',
    token: 'usdc',
    make: (from, to) => ({ keys: [selectors.Transfer, from, to], data: [TOO_BIG, '0x0'] }),
  },
  {
    kind: 'high half out of range',
    token: 'eth',
    make: (from, to) => ({ keys: [selectors.Transfer], data: [from, to, '0x1', TOO_BIG] }),
  },
  {
    kind: 'short data',
    token: 'dai',
    make: (from, to) => ({ keys: [selectors.Transfer], data: [from, to] }),
  },
  {
    kind: 'no sender',
    token: 'usdt',
    make: (_from, to) => ({ keys: [selectors.Transfer, to], data: ['0x1'] }),
  },
  {
    kind: 'long data',
    token: 'foxes',
    make: (from, to) => ({ keys: [selectors.Transfer, from, to], data: ['0x1', '0x0', '0x2', '0x0', '0x3'] }),
  },
  {
    kind: 'short single',
    token: 'items',
    make: (from, to) => ({ keys: [selectors.TransferSingle, from, from, to], data: ['0x1', '0x0', '0x2'] }),
  },
  {
    kind: 'single with a half out of range',
    token: 'items',
    make: (from, to) => ({
      keys: [selectors.TransferSingle, from, from, to],
      data: ['0x1', '0x0', TOO_BIG, '0x0'],
    }),
  },
  {
    kind: 'span longer than the data',
    token: 'items',
    make: (from, to) => ({
      keys: [selectors.TransferBatch, from, from, to],
      data: ['0x3', '0x1', '0x0', '0x2', '0x0', '0x2', '0x5', '0x0', '0x6', '0x0'],
    }),
  },
  {
    kind: 'spans of two lengths',
    token: 'items-legacy',
    make: (from, to) => ({
      keys: [selectors.TransferBatch],
      data: [from, from, to, '0x2', '0x1', '0x0', '0x2', '0x0', '0x1', '0x5', '0x0'],
    }),
  },
  {
    kind: 'span length beyond any array',
    token: 'items',
    make: (from, to) => ({
      keys: [selectors.TransferBatch, from, from, to],
      data: ['0xffffffffffffffff', '0x1', '0x0', '0x0'],
    }),
  },
];

export function malformedEvent(chance: number, from: string, to: string): { event: RawEvent; kind: string } {
  const shape = item(shapes, chance % shapes.length);
  const token = tokens.find(({ key }) => key === shape.token);
  if (token === undefined) throw new RangeError(`there is no token ${shape.token}`);
  return { event: { from_address: token.hex, ...shape.make(from, to) }, kind: shape.kind };
}
