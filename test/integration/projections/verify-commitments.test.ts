import { afterAll, beforeAll, expect, test } from 'vitest';

import { withAdvisoryLocks } from '../../../infra/postgres/advisory-lock.ts';
import { reportLines } from '../../../projections/engine/verify/report-lines.ts';
import { verify } from '../../../projections/engine/verify/verify.ts';
import { chainProjections } from '../../../projections/index.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { BlockBody } from '../../../schemas/messages/chain-blocks.ts';
import { accepted, busyBlock, madeUpHeader, reverted } from '../../support/chain-messages.ts';
import { independentCommitment } from '../../support/event-commitment.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { tds } from '../../support/tds.ts';
import { withTrueHash } from '../../support/true-chain.ts';

/** A verification of the log with the event commitments of its headers, computed here by another implementation. */

let world: ProjectionWorld;
const TRUE = 3;

const withCommitment = (block: BlockBody, isTrue: boolean): BlockBody => {
  const event_commitment = toFelt(isTrue ? independentCommitment(block.transactions) : 0xbadn);
  return { ...block, header: { ...madeUpHeader, event_commitment } };
};

/** With the hashes of their headers, each on top of the one before. */
function chained(blocks: readonly BlockBody[]): BlockBody[] {
  const chain: BlockBody[] = [];
  for (const block of blocks) {
    const parent = chain.at(-1)?.hash ?? block.parent_hash;
    chain.push(block.header === undefined ? { ...block, parent_hash: parent } : withTrueHash(block, parent));
  }
  return chain;
}

beforeAll(async () => {
  world = await projectionWorld();
  const blocks = chained([
    ...Array.from({ length: TRUE }, (_, height) => withCommitment(busyBlock(height, 3), true)),
    withCommitment(busyBlock(3, 3), false),
    { ...withCommitment(busyBlock(4, 3), false), starknet_version: '0.13.1' },
    busyBlock(5, 3),
    // Its commitment matches, but its hash does not bind it.
    withCommitment(busyBlock(6, 3), true),
  ]);
  const unbound = { ...(blocks[6] ?? expect.fail('no block')), sequencer_address: toFelt(7n) };
  const parent = blocks[1]?.hash ?? expect.fail('no block');
  const orphan = withTrueHash(withCommitment(busyBlock(2, 3, 1), false), parent);
  await world.publish([
    accepted(orphan, 1),
    reverted(orphan, 2),
    ...[...blocks.slice(0, 6), unbound].map((block) => accepted(block, 3)),
  ]);
  await world.catchUp();
  await world.pool.query(
    "INSERT INTO tds.chunks (name, range_start, cursor, final_height) VALUES ('live', 0, 7, 0)",
  );
});
afterAll(async () => await world?.close());

const look = async (commitments: boolean, to: number | null = null) =>
  await verify(
    { ...world, projections: chainProjections, deferred: [], signal: new AbortController().signal },
    { from: null, to, repair: false, waitMs: 5000, betweenComparisonsMs: 50, commitments },
  );

test('names the block whose events do not match, and counts all outcomes', async () => {
  const report = await look(true);
  expect(report.differences).toEqual([
    {
      kind: 'log',
      what: 'block 3 of the log: its events do not match the event commitment in its header',
      heights: { from: 3, to: 3 },
      reread: true,
    },
  ]);
  expect(report.commitments).toEqual({ verified: TRUE, mismatched: 1, old_version: 1, no_commitment: 2 });
  expect(reportLines(report)).toContain(
    'Event commitments: 3 blocks match, 1 do not, 1 are of an older Starknet, 2 have none that the hash of their block binds.',
  );
});

test('leaves out an orphan that does not match, and what is outside the heights', async () => {
  const report = await look(true, 2);
  expect(report.differences).toEqual([]);
  expect(report.commitments).toEqual({ verified: TRUE, mismatched: 0, old_version: 0, no_commitment: 0 });
});

test('compares no commitment unless it is asked to', async () => {
  const report = await look(false);
  expect([report.differences, report.commitments]).toEqual([[], null]);
});

test('tds verify --repair prints what it has found where it cannot verify the blocks that were read again', async () => {
  const { pool, env } = world;
  const verified = tds(env, 'verify', '--commitments', '--repair', '--from', '3', '--to', '3');
  await until(async () => (await pool.query('SELECT FROM tds.repairs')).rowCount === 1, 30_000);
  const busy = (): string => 'taken';
  await withAdvisoryLocks(pool, ['tds.verify'], busy, async () => {
    await pool.query('UPDATE tds.repairs SET done_at = now()');
    expect(await verified).toEqual({
      code: 2,
      stdout: expect.stringMatching(/block 3 of the log: its events do not match[^]*: 1 difference\.\n$/),
      // On a busy machine, its progress comes first.
      stderr: expect.stringMatching(/(^|\n)Another verification is running\n$/),
    });
  });
});
