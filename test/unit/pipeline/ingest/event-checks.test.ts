import { expect, test } from 'vitest';

import type { CheckSettings } from '../../../../pipeline/ingest/commitments.ts';
import type { FetchedBlock } from '../../../../pipeline/node/types.ts';
import { eventCommitment } from '../../../../schemas/commitment/events.ts';
import { STRK_TOKEN, ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';
import { makeBlock, transferEvent } from '../../../support/chain-messages.ts';
import { REFUSED, UNVERIFIABLE, checkedBlocks, knownStore } from '../../../support/checked-blocks.ts';

const event = transferEvent(STRK_TOKEN, toFelt(1n), toFelt(2n), 3n);

function fetched(height: number, isTrue: boolean, events = 1): FetchedBlock {
  const body = makeBlock({ height, transactions: [{ events: Array.from({ length: events }, () => event) }] });
  const commitment = isTrue ? eventCommitment(body.transactions) : toFelt(0xbadn);
  return { body, status: 'ACCEPTED_ON_L2', eventCommitment: commitment, bytes: 1 };
}

const outcomes = (
  blocks: readonly FetchedBlock[],
  mode: CheckSettings['mode'],
  store = knownStore(),
  head?: number,
) =>
  checkedBlocks(
    blocks,
    { mode, store, heads: head === undefined ? [] : [head] },
    ({ body }) => body.event_check,
  );

test('records a mismatch until a block has matched, and refuses it from then on', async () => {
  const known = knownStore();
  const matches = [false, false, false, true, false, true];
  const blocks = matches.map((isTrue, height) => fetched(height, isTrue));
  // Block 2 has a neighbour that matches.
  const expected = ['mismatched', 'mismatched', REFUSED, 'verified', REFUSED, 'verified'];
  expect(await outcomes(blocks, 'sample', known)).toEqual(expected);
  // A process that starts later.
  expect(await outcomes([fetched(0, false)], 'sample', known)).toEqual([REFUSED]);
});

test.each([
  ['a neighbour', [false, true, false, false, false], 2],
  ['the newest block', [false, false, false, false, true], 2],
])('refuses the first mismatch already where %s matches', async (_which, matches, first) => {
  const blocks = matches.map((isTrue, height) => fetched(height, isTrue));
  const known = knownStore();
  const outcome = await outcomes(blocks, 'sample', known, 4);
  expect(outcome[0]).toBe(REFUSED);
  expect(outcome[first]).toBe(REFUSED);
  expect(known.stored.get('events 0.14.0 verified')).toBeGreaterThan(0);
});

test('learns nothing from a block without events, whose commitment is zero on any chain', async () => {
  const empty = fetched(0, true, 0);
  expect(empty.eventCommitment).toBe(ZERO_FELT);
  expect(await outcomes([empty, fetched(1, false)], 'sample')).toEqual(['verified', 'mismatched']);
});

test('refuse refuses the first block already, record none, and off compares nothing', async () => {
  const blocks = [fetched(0, false), fetched(1, true), fetched(2, false)];
  expect(await outcomes(blocks, 'refuse')).toEqual([REFUSED, 'verified', REFUSED]);
  expect(await outcomes(blocks, 'record')).toEqual(['mismatched', 'verified', 'mismatched']);
  expect(await outcomes(blocks, 'off')).toEqual([undefined, undefined, undefined]);
});

test('compares one block in sixteen where 64 did not match, and every block again once one matches', async () => {
  const blocks = Array.from({ length: 140 }, (_, height) => fetched(height, height === 128));
  const found = await outcomes(blocks, 'sample');
  expect(found.slice(0, 64)).toEqual(Array.from({ length: 64 }, () => 'mismatched'));
  const compared = [...found.keys()].filter((height) => height >= 64 && found[height] !== undefined);
  expect(compared).toEqual([64, 80, 96, 112, ...Array.from({ length: 12 }, (_, index) => 128 + index)]);
  expect(found.slice(128)).toEqual(['verified', ...Array.from({ length: 11 }, () => REFUSED)]);
});

test('sample compares the newest 64 blocks and one in sixteen of those below, head the newest alone, all each', async () => {
  const blocks = Array.from({ length: 200 }, (_, height) => fetched(height, true));
  const compared = (found: readonly (string | undefined)[]): number[] =>
    [...found.keys()].filter((height) => found[height] === 'verified');
  const sampled = [0, 16, 32, 48, 64, 80, 96, 112, 128];
  const latest = Array.from({ length: 65 }, (_, index) => 135 + index);
  expect(compared(await outcomes(blocks, 'sample', knownStore(['events 0.14.0']), 199))).toEqual([
    ...sampled,
    ...latest,
  ]);
  expect(compared(await outcomes(blocks, 'head', knownStore(['events 0.14.0']), 199))).toEqual(latest);
  expect(compared(await outcomes(blocks, 'all', knownStore(['events 0.14.0']), 199))).toHaveLength(200);
});

test('samples from the first block on where the newest header was read before', async () => {
  const blocks = Array.from({ length: 40 }, (_, height) => fetched(height, true));
  const options = { store: knownStore(['events 0.14.0']), latest: 199 };
  const found = await checkedBlocks(blocks, options, ({ body }) => body.event_check);
  expect([...found.keys()].filter((height) => found[height] === 'verified')).toEqual([0, 16, 32]);
});

test('refuses mismatches of a version of which none has matched, once another version has', async () => {
  const { body, ...rest } = fetched(1, false);
  const other = { ...rest, body: { ...body, starknet_version: '9.9.9' } };
  expect(await outcomes([fetched(0, true), other], 'sample')).toEqual(['verified', REFUSED]);
});

test('refuses events without a commitment once commitments are known to hold, unless they are accepted', async () => {
  const blocks = [null, ZERO_FELT].map((eventCommitment, height) => ({
    ...fetched(height, true),
    eventCommitment,
  }));
  expect(await outcomes(blocks, 'sample')).toEqual(['no_commitment', 'no_commitment']);
  const store = knownStore(['events 0.14.0']);
  expect(await outcomes(blocks, 'sample', store)).toEqual([UNVERIFIABLE, UNVERIFIABLE]);
  const accepting = { incomplete: 'accept', store } as const;
  const found = await checkedBlocks(blocks, accepting, ({ body }) => body.event_check);
  expect(found).toEqual(['no_commitment', 'no_commitment']);
  expect(store.stored.get('events 0.14.0 incomplete')).toBe(2);
});
