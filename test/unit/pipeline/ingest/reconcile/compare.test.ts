import { expect, test } from 'vitest';

import type { Chunk, LoggedMessage, RecordedHeader } from '../../../../../pipeline/ingest/ports.ts';
import { compareWithLog } from '../../../../../pipeline/ingest/reconcile/compare.ts';
import { foldVersions, versionKey } from '../../../../../pipeline/ingest/reconcile/versions.ts';
import { toFelt } from '../../../../../schemas/felt.ts';
import type { ContractsMap } from '../../../../../schemas/messages/chain-blocks.ts';
import { accepted, makeBlock, reverted } from '../../../../support/chain-messages.ts';

const block = (height: number, fork = 0, parentFork = fork) =>
  makeBlock({ height, fork, parentFork, transactions: [] });
const on = (height: number, fork = 0, seq = 100, parentFork = fork) =>
  accepted(block(height, fork, parentFork), seq);
const off = (height: number, fork = 0, seq = 200) => reverted(block(height, fork), seq);

/** Live: final up to 10, recorded 11 to 13, cursor at 14. */
const live: Chunk = {
  name: 'live',
  start: 0,
  end: null,
  cursor: 14,
  finalHeight: 10,
  finalHash: block(10).hash,
  firstParent: null,
  finished: false,
  opened: true,
  plan: { to: -1, facts: {} },
  updatedAt: 0,
  lease: null,
};

const header = (height: number): RecordedHeader => {
  const { hash, parent_hash: parentHash } = block(height);
  return { height, hash, parentHash, intent: 'accept' };
};

async function* logged(messages: readonly LoggedMessage['message'][]): AsyncGenerator<LoggedMessage> {
  for (const [offset, message] of messages.entries()) yield { partition: 0, offset, message };
}

/** Offsets of what is adopted and reverted, and the fork. */
async function compare(
  messages: readonly LoggedMessage['message'][],
  { chunk = live, heights = [11, 12, 13] }: { chunk?: Chunk; heights?: readonly number[] } = {},
) {
  const { versions } = await foldVersions(logged(messages));
  const recorded = new Set(heights.map((height) => versionKey(on(height))));
  const found = compareWithLog({ chunk, headers: heights.map(header), recorded, versions });
  return {
    adopt: found.adopt.map(({ offset }) => offset),
    revert: found.revert.map(({ offset }) => offset),
    fork: found.fork,
  };
}

const nothing = { adopt: [], revert: [], fork: null };

test('finds nothing in a log that has the recorded blocks, whichever part of it was read', async () => {
  expect(await compare([])).toEqual(nothing);
  expect(await compare([on(13)])).toEqual(nothing);
  expect(await compare([on(9, 5), on(11), off(12, 7), on(12), on(13)])).toEqual(nothing);
});

test('takes a block for the recorded one whether or not its events were compared', async () => {
  const compared = accepted({ ...block(13), event_check: 'verified' }, 90);
  expect(await compare([compared, on(13)])).toEqual(nothing);
  expect(await compare([compared])).toEqual(nothing);
});

test('adopts blocks that continue the recorded chain', async () => {
  expect(await compare([on(12), on(13), on(14), on(15)])).toEqual({ ...nothing, adopt: [2, 3] });
});

test('reverts blocks above the recorded chain that are not on top of it', async () => {
  expect(await compare([on(14, 3), on(15, 3)])).toEqual({ ...nothing, revert: [0, 1] });
  expect(await compare([on(15)])).toEqual({ ...nothing, revert: [0] });
  // Two blocks of one height cannot both be of the chain.
  expect(await compare([on(14), on(14, 3, 101, 0)])).toEqual({ ...nothing, revert: [0, 1] });
});

test('reverts a fork that replaced recorded blocks, and has them indexed again', async () => {
  const replaced = [off(13), off(12), on(12, 4, 201, 0), on(13, 4, 201), on(14, 4, 201)];
  expect(await compare(replaced)).toEqual({ adopt: [], revert: [2, 3, 4], fork: 11 });
});

test('has a recorded block indexed again that the log has reverted', async () => {
  expect(await compare([off(13)])).toEqual({ ...nothing, fork: 12 });
});

test('takes the message with the highest seq, not the last one', async () => {
  expect(await compare([off(13, 0, 200), on(13, 0, 100)])).toEqual({ ...nothing, fork: 12 });
  expect(await compare([off(14, 2, 200), on(14, 2, 100)])).toEqual(nothing);
});

test('reverts a recorded block that was published with other contract facts', async () => {
  const contracts: ContractsMap = { [toFelt(0x123n)]: { standard: 'erc721', class_hash: null } };
  const repaired = { ...on(12, 0, 202), contracts };
  expect(await compare([off(12, 0, 201), repaired])).toEqual({ adopt: [], revert: [1], fork: 11 });
});

test('leaves planned final blocks to the plan', async () => {
  const chunk = { ...live, cursor: 11, plan: { to: 12, facts: {} } };
  expect(await compare([on(11), on(12)], { chunk, heights: [] })).toEqual(nothing);
  expect(await compare([on(11), on(12), on(13)], { chunk, heights: [] })).toEqual({
    ...nothing,
    adopt: [0, 1, 2],
  });
});

test('has blocks of a gap in the records indexed again if the log knows them, and names the gap otherwise', async () => {
  const heights = [11, 13];
  expect(await compare([on(12)], { heights })).toEqual({ adopt: [], revert: [0], fork: 11 });
  await expect(compare([on(13)], { heights })).rejects.toMatchObject({
    code: 'RECORDS_INCOMPLETE',
    message: expect.stringContaining('no recorded block at height 12'),
    details: { heights: [12] },
  });
});
