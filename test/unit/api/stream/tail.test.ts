import { afterEach, expect, it } from 'vitest';

import { createTail } from '../../../../api/stream/tail.ts';
import type { Tail, TailDeps } from '../../../../api/stream/tail.ts';
import { createLogger } from '../../../../infra/log.ts';
import { toFelt } from '../../../../schemas/felt.ts';
import type { Felt } from '../../../../schemas/felt.ts';

const hashOf = (height: number): Felt => toFelt(BigInt(0xb10c_0000 + height));
const rowsOf = (from: number, to: number, seq: number) =>
  Array.from({ length: to - from + 1 }, (_, i) => ({
    height: from + i,
    hash: hashOf(from + i),
    parent: hashOf(from + i - 1),
    timestamp: 1,
    transfers: 0,
    seq,
  }));

/** The index: blocks without a transfer up to a height, and those above it that were reverted. */
let head = 6;
/** Reads of the newest blocks answer after this. */
let slow = Promise.resolve();
const answers: Readonly<Record<string, () => unknown>> = {
  'indexed-blocks.newest-linked': async () => {
    const rows = rowsOf(1, head, 1).toReversed();
    await slow;
    return rows;
  },
  'indexed-blocks.linked': () => rowsOf(1, head, 1),
  'reverted-blocks.between': () => rowsOf(head + 1, 6, 10),
};
const deps = {
  clickhouse: { rows: async ({ name }: { name: string }) => (await answers[name]?.()) ?? [] },
  pool: { query: async () => ({ rows: [] }) },
  servedBuilds: async () => ({ table: (name: string) => name, schema: (name: string) => name }),
  log: createLogger('test', 'silent'),
} as unknown as TailDeps;

let tail: Tail;
afterEach(async () => {
  await tail.close();
});

/** The tail has read the blocks up to 4, while 5 and 6 were reverted. */
async function startHalfReverted(): Promise<void> {
  head = 4;
  slow = Promise.resolve();
  tail = createTail(deps);
  tail.join();
  expect((await tail.view()).blocks).toHaveLength(4);
}

const undo = { lastValid: { height: 2, hash: hashOf(2) }, from: 3, to: 6, hashes: [3, 4, 5, 6].map(hashOf) };

it('shows no blocks that an undo has named', async () => {
  await startHalfReverted();
  head = 2;
  expect(await tail.undoOf({ height: 6, hash: hashOf(6) })).toMatchObject(undo);
  expect(tail.newest()).toBe(null);
  expect((await tail.view()).blocks).toHaveLength(2);
  expect(tail.newest()?.version).toBe(2);
});

it('does not show a view whose read began before an undo', async () => {
  await startHalfReverted();
  const { resolve, promise } = Promise.withResolvers<void>();
  slow = promise;
  tail.notify();
  await new Promise((done) => setTimeout(done, 100));
  head = 2;
  expect(await tail.undoOf({ height: 6, hash: hashOf(6) })).toMatchObject(undo);
  slow = Promise.resolve();
  resolve();
  expect((await tail.view()).blocks).toHaveLength(2);
});
