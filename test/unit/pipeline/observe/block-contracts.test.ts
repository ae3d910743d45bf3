import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { readBlockContracts, readEventsOf } from '../../../../pipeline/observe/block-contracts.ts';
import { chainBlocksMessage } from '../../../../schemas/messages/chain-blocks.ts';
import { ART, ITEMS, accepted, busyBlock, makeBlock } from '../../../support/chain-messages.ts';

const bytes = (value: unknown): Buffer =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
const empty = accepted(makeBlock({ height: 7, transactions: [] }), 3);
const busy = accepted(busyBlock(1000, 3), 9, 'live');
const contractsOf = ({ type, seq, cause, block, contracts }: typeof busy) => ({
  type,
  seq,
  cause,
  block: { height: block.height },
  contracts,
});

const NFTS: ReadonlySet<string> = new Set([ART, ITEMS]);
const nftEvents = busy.block.transactions
  .flatMap((tx) => tx.events)
  .filter((event) => NFTS.has(event.from_address));

describe('readBlockContracts', () => {
  it('reads published messages', () => {
    expect(readBlockContracts(bytes(busy))).toEqual(contractsOf(busy));
    expect(Object.keys(busy.contracts).length).toBeGreaterThan(0);
    expect(readBlockContracts(bytes(empty))).toEqual(contractsOf(empty));
  });

  it('reads the same from any order of fields, spacing and text', () => {
    const markers = fc.constantFrom(
      '"transactions":[',
      '"contracts":{',
      ']},"contracts":{}}',
      '\\"',
      'é',
      '[',
      '{"',
    );
    const text = fc.array(fc.oneof(markers, fc.string()), { maxLength: 4 }).map((parts) => parts.join(''));
    const inAnyOrder = <T extends object>(value: T): fc.Arbitrary<T> =>
      fc
        .shuffledSubarray(Object.entries(value), { minLength: Object.keys(value).length })
        .map((entries) => Object.fromEntries(entries) as T);
    const messages = fc
      .record({ chunk: text, version: text, spaces: fc.constantFrom(0, 1) })
      .chain(({ chunk, version, spaces }) =>
        inAnyOrder({ ...busy.block, starknet_version: version })
          .chain((block) => inAnyOrder({ ...busy, chunk, block }))
          .map((message) => ({ message, sent: JSON.stringify(message, null, spaces) })),
      );
    fc.assert(
      fc.property(messages, ({ message, sent }) => {
        expect(chainBlocksMessage.safeParse(message).success).toBe(true);
        expect(readBlockContracts(bytes(sent))).toEqual(contractsOf(message));
        expect(readEventsOf(NFTS, bytes(sent))).toEqual(nftEvents);
      }),
    );
  });

  it.each([
    '',
    'null',
    '[]',
    '{"transactions":[]},"contracts":{}}',
    JSON.stringify({ ...busy, contracts: { x: 1 } }),
    JSON.stringify({ ...busy, contracts: undefined }),
    JSON.stringify(busy).slice(0, -1),
  ])('returns null for invalid message %#', (value) => {
    expect(readBlockContracts(bytes(value))).toBeNull();
  });
});

describe('readEventsOf', () => {
  it('reads the events of the contracts only', () => {
    expect(nftEvents.length).toBeGreaterThan(0);
    expect(readEventsOf(NFTS, bytes(busy))).toEqual(nftEvents);
    expect(readEventsOf(new Set([ITEMS]), bytes(empty))).toEqual([]);
  });

  const withEvent = (event: unknown): Buffer =>
    bytes(makeBroken((tx) => ({ ...tx, events: [...tx.events, event] })));
  it.each([
    ['without data', { from_address: ART, keys: [] }],
    ['with a key that is no felt', { from_address: ART, keys: ['0x1'], data: [] }],
    ['with a nested value', { from_address: ART, keys: [{}], data: [] }],
  ])('returns null for an event %s', (_, event) => {
    expect(readEventsOf(NFTS, withEvent(event))).toBeNull();
  });

  it('returns null for a message without transactions', () => {
    expect(readEventsOf(NFTS, bytes({ ...busy, block: { height: 7 } }))).toBeNull();
  });
});

function makeBroken(change: (tx: (typeof busy)['block']['transactions'][number]) => unknown): unknown {
  return { ...busy, block: { ...busy.block, transactions: busy.block.transactions.map(change) } };
}
