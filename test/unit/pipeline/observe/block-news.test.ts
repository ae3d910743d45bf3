import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { readBlockNews } from '../../../../pipeline/observe/block-news.ts';
import { chainBlocksMessage } from '../../../../schemas/messages/chain-blocks.ts';
import { accepted, busyBlock, makeBlock } from '../../../support/chain-messages.ts';

const bytes = (value: unknown): Buffer =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
const empty = accepted(makeBlock({ height: 7, transactions: [] }), 3);
const busy = accepted(busyBlock(1000, 3), 9, 'live');
const newsOf = ({ type, seq, cause, block, contracts }: typeof busy) => ({
  type,
  seq,
  cause,
  block: { height: block.height },
  contracts,
});

describe('what a block tells of tokens', () => {
  it('is read from messages as they are published', () => {
    expect(readBlockNews(bytes(busy))).toEqual(newsOf(busy));
    expect(Object.keys(busy.contracts).length).toBeGreaterThan(0);
    expect(readBlockNews(bytes(empty))).toEqual(newsOf(empty));
  });

  it('is the same however the message is laid out, and whatever its texts hold', () => {
    const marks = fc.constantFrom(
      '"transactions":[',
      '"contracts":{',
      ']},"contracts":{}}',
      '\\"',
      'é',
      '[',
      '{"',
    );
    const text = fc.array(fc.oneof(marks, fc.string()), { maxLength: 4 }).map((parts) => parts.join(''));
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
        expect(readBlockNews(bytes(sent))).toEqual(newsOf(message));
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
  ])('is nothing in %#', (value) => {
    expect(readBlockNews(bytes(value))).toBeNull();
  });
});
