import { expect, it } from 'vitest';

import type { StreamFilter, StreamedBlock } from '../../../../api/stream/blocks.ts';
import { decodeCursor, digestOf } from '../../../../api/stream/cursor.ts';
import { createFollower } from '../../../../api/stream/follower.ts';
import type { Follower } from '../../../../api/stream/follower.ts';
import type { Message } from '../../../../api/stream/messages.ts';
import type { Tail, TailView } from '../../../../api/stream/tail.ts';
import { ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';
import type { Felt } from '../../../../schemas/felt.ts';

const [coin, gem] = [toFelt(0xc01n), toFelt(0x9e3n)];
const hashOf = (height: number): Felt => toFelt(BigInt(0xb10c_0000 + height));

/** A block with a transfer of each token, in that order. */
function blockAt(height: number): StreamedBlock {
  const block = {
    height,
    hash: hashOf(height),
    parent: hashOf(height - 1),
    timestamp: 1_700_000_000 + height,
    transfers: 2,
    seq: 10 * height,
  };
  const transfers = [coin, gem].map((token, position) => ({
    row: {
      token,
      block: height,
      position,
      item: 0,
      from: toFelt(1n),
      to: toFelt(2n),
      kind: 'erc20' as const,
      amount: '7',
      token_id: '0',
      txhash: toFelt(BigInt(100 * height + position)),
      timestamp: block.timestamp,
      fee: '0',
      fee_unit: ZERO_FELT,
      is_fee: 0,
      execution_status: 'SUCCEEDED' as const,
    },
    json: () => JSON.stringify({ token, height }),
  }));
  return { block, transfers };
}

let view: TailView;
const show = (heights: readonly number[], l1Height: number | null): void => {
  const blocks = heights.map(blockAt).map((whole) => ({ block: whole.block, whole }));
  view = { version: (view?.version ?? 0) + 1, l1Height, first: 1, blocks };
};
const tail: Tail = {
  view: async () => view,
  newest: () => view,
  undoOf: async () => null,
  changed: async () => {},
  join: () => () => {},
  notify: () => {},
  close: async () => {},
};

function follow(filter: StreamFilter, from: number): Follower {
  return createFollower({
    tail,
    filter,
    source: () => {
      throw new Error('reads history');
    },
    reading: () => Promise.reject(new Error('reads history')),
    isFinal: false,
    isEndless: true,
    digest: digestOf(JSON.stringify(filter)),
    start: { last: null, within: null, next: from, final: null },
  });
}

const contents = (messages: readonly Message[]): unknown[] =>
  messages.map(({ type, data }) => {
    const { height, token } = JSON.parse(data) as { height: number; token?: Felt };
    return token === undefined ? `${type} ${height}` : `${type} ${height} ${token === coin ? 'coin' : 'gem'}`;
  });

it('gives streams with the same filters the same messages, and every other stream its own', async () => {
  show([1, 2], null);
  const [first, second, other, later] = [
    follow({ token: coin }, 1),
    follow({ token: coin }, 1),
    follow({ token: gem }, 1),
    follow({ token: coin }, 2),
  ];
  const messages = await first.read();
  expect(contents(messages)).toEqual(['transfer 1 coin', 'block 1', 'transfer 2 coin', 'block 2']);
  expect(await second.read()).toBe(messages);
  expect(contents(await other.read())).toEqual(['transfer 1 gem', 'block 1', 'transfer 2 gem', 'block 2']);
  expect(contents(await later.read())).toEqual(['transfer 2 coin', 'block 2']);
});

it('gives what the newest blocks hold without a read, and only that', async () => {
  show([1, 2], null);
  const [coins, none] = [follow({ token: coin }, 1), follow({ account: gem }, 1)];
  for (const stream of [coins, none]) {
    // It has no block yet that the next one must be the child of.
    expect(stream.held()).toBe(null);
    await stream.read();
    expect(stream.held()).toEqual([]);
  }
  show([1, 2, 3], 1);
  expect(contents(coins.held() ?? [])).toEqual(['transfer 3 coin', 'block 3', 'final 1']);
  expect(contents(none.held() ?? [])).toEqual(['block 3', 'final 1']);
  // Block 4 is not in the view, and the block that the clients have is gone from the next one.
  show([5, 6], 1);
  expect(coins.held()).toBe(null);
  show([1, 2], 1);
  expect(coins.held()).toBe(null);
});

it('goes on behind messages that were made for another stream', async () => {
  show([1, 2], null);
  const streams = [follow({ token: coin }, 1), follow({ token: coin }, 1)];
  for (const stream of streams) await stream.read();
  show([1, 2, 3], 1);
  for (const stream of streams) {
    const messages = await stream.read();
    expect(contents(messages)).toEqual(['transfer 3 coin', 'block 3', 'final 1']);
    expect(decodeCursor(messages.at(-1)?.cursor ?? '', digestOf(JSON.stringify({ token: coin })))).toEqual({
      last: { height: 3, hash: hashOf(3) },
      within: null,
      next: 4,
      final: 1,
    });
    expect(await stream.read()).toEqual([]);
  }
});
