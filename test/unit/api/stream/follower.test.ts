import { expect, it } from 'vitest';

import type { StreamFilter, StreamedBlock } from '../../../../api/stream/blocks.ts';
import { digestOf } from '../../../../api/http/cursor-digest.ts';
import { decodeCursor } from '../../../../api/stream/cursor.ts';
import { createFollower } from '../../../../api/stream/follower.ts';
import type { Follower } from '../../../../api/stream/follower.ts';
import type { Message } from '../../../../api/stream/messages.ts';
import type { Undo } from '../../../../api/stream/undo.ts';
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
let undo: Undo | null = null;
const show = (heights: readonly number[], l1Height: number | null): void => {
  const blocks = heights.map(blockAt).map((whole) => ({ block: whole.block, whole }));
  view = { version: (view?.version ?? 0) + 1, l1Height, first: 1, blocks };
};
const tail: Tail = {
  view: async () => view,
  newest: () => view,
  undoOf: async () => undo,
  changed: async () => {},
  join: () => () => {},
  notify: () => {},
  close: async () => {},
};

const optionsOf = (filter: StreamFilter) => ({
  tail,
  stream: { enterHistory: async () => {}, leaveHistory: () => {} },
  filter,
  source: () => {
    throw new Error('reads history');
  },
  reading: () => Promise.reject(new Error('reads history')),
  isFinal: false,
  isEndless: true,
  digest: digestOf(JSON.stringify(filter)),
});

function follow(filter: StreamFilter, from: number): Follower {
  return createFollower({
    ...optionsOf(filter),
    start: { last: null, within: null, next: from, final: null, floor: from },
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
      floor: 1,
    });
    expect(await stream.read()).toEqual([]);
  }
});

/** Shows that the chain ends at this height with another block, and what was reverted. */
function revert(lastValid: number, to: number, seq: number): void {
  const heights = Array.from({ length: to - lastValid }, (_, i) => lastValid + 1 + i);
  const block = { height: lastValid, hash: hashOf(lastValid) };
  undo = { lastValid: block, from: lastValid + 1, to, hashes: heights.map(hashOf), seq };
  show([lastValid], null);
}

it('gives nothing from below the height that a client began with, however deep a reorg goes', async () => {
  show([8, 9], null);
  const filter = { token: coin };
  const client = follow(filter, 8);
  expect(contents(await client.read())).toHaveLength(4);
  revert(5, 9, 100);
  const [message] = await client.read();
  expect([message?.type, JSON.parse(message?.data ?? '')]).toMatchObject([
    'undo',
    { last_valid: { height: 5, hash: hashOf(5) }, from: 6, to: 9, hashes: [6, 7, 8, 9].map(hashOf) },
  ]);
  undo = null;
  show([5, 6, 7], null);
  expect(await client.read()).toEqual([]);
  show([5, 6, 7, 8], null);
  expect(contents(await client.read())).toEqual(['transfer 8 coin', 'block 8']);
  // A client that resumes keeps its floor.
  const digest = digestOf(JSON.stringify(filter));
  for (const cursor of [message?.cursor, JSON.parse(message?.data ?? '').last_valid_cursor])
    expect(decodeCursor(cursor, digest)).toMatchObject({ last: null, next: 8, floor: 8 });
});

it('gives every message another cursor, also of a block that was reverted and is there again', async () => {
  const client = follow({}, 3);
  const cursors: string[] = [];
  for (let round = 0; round < 3; round += 1) {
    const blocks = [2, 3, 4].map(blockAt).map((whole) => {
      const block = { ...whole.block, seq: whole.block.seq + (whole.block.height > 2 ? 1000 * round : 0) };
      return { block, whole: { ...whole, block } };
    });
    undo = null;
    view = { version: view.version + 1, l1Height: null, first: 1, blocks };
    const messages = await client.read();
    expect(contents(messages)).toHaveLength(6);
    revert(2, 4, 1000 * round + 500);
    const undone = await client.read();
    expect(undone.map(({ type }) => type)).toEqual(['undo']);
    cursors.push(...[...messages, ...undone].map(({ cursor }) => cursor));
  }
  expect(new Set(cursors).size).toBe(cursors.length);
});

it('says where it begins, before and after its first messages', async () => {
  const digest = digestOf(JSON.stringify({ token: coin }));
  show([1, 2], null);
  const client = createFollower({ ...optionsOf({ token: coin }), start: null });
  expect(await client.read()).toEqual([]);
  const start = { last: { height: 2, hash: hashOf(2) }, within: null, next: 3, final: null, floor: 0 };
  expect(decodeCursor(client.start(), digest)).toEqual(start);
  show([1, 2, 3], null);
  expect(await client.read()).toHaveLength(2);
  expect(decodeCursor(client.start(), digest)).toEqual(start);
});

it('gives the undos of the parts of one reorg other cursors', async () => {
  const cursors: (string | undefined)[] = [];
  for (const to of [9, 12]) {
    show(
      [8, 9, 10, 11, 12].filter((height) => height <= to),
      null,
    );
    const client = follow({}, 8);
    await client.read();
    // The same version, and the same position behind it.
    revert(5, to, 100);
    cursors.push((await client.read())[0]?.cursor);
    undo = null;
  }
  expect(new Set(cursors).size).toBe(2);
});
