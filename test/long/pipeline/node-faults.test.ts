import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';

import { layoutNames } from '../../../infra/embedded/starknet/layouts.ts';
import type { Fault } from '../../support/starknet/faults.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { topics } from '../../../schemas/topics.ts';
import { differences, ingestWorld, until } from '../../support/ingest-world.ts';
import type { IngestWorld } from '../../support/ingest-world.ts';

/** With a node that answers wrongly, late or not at all, no wrong block and no false reorg is published, and the ingester recovers. */

const L1 = 140;
const HEAD = 180;
const BLOCKS = ['starknet_getBlockWithReceipts'];
/** Highest published height, and number of reverts. */
const published = async (world: IngestWorld) => {
  const messages = await world.read(topics.chainBlocks);
  return {
    top: Math.max(...messages.map(({ block }) => block.height)),
    reverts: messages.filter(({ type }) => type === 'block.reverted').length,
  };
};

describe('the ingester at the head', () => {
  let world: IngestWorld;
  beforeAll(async () => {
    world = await ingestWorld({ seed: 'node faults', initialHead: 60 });
    world.node.control({ command: 'setL1', height: 20 });
    world.start();
    await world.indexed(60);
  });
  afterAll(async () => await world.close());
  beforeEach(() => world.node.control({ command: 'clearFaults' }));

  test.each<[string, Fault]>([
    ['limits its rate', { kind: 'http429', retryAfter: 1 }],
    ['is unavailable behind its gateway', { kind: 'http503' }],
    ['truncates its answers', { kind: 'truncated' }],
    ['never answers', { kind: 'hang' }],
    ['answers null', { kind: 'null-result' }],
    ['lacks the block of its head', { kind: 'null-result', methods: BLOCKS }],
    ['leaves out an event under the right count', { kind: 'missing-events' }],
    ['leaves out a transaction under the right count', { kind: 'missing-transactions' }],
    ['names a parent that does not exist', { kind: 'wrong-parent' }],
    ['answers with an internal error', { kind: 'error', code: -32603 }],
  ])('recovers from a node that %s', async (_, fault) => {
    const before = world.node.ledger.head();
    world.node.control({ command: 'fault', fault });
    world.node.control({ command: 'advance', blocks: 3 });
    await until('the fault strikes', async () => (world.node.faults.list()[0]?.struck ?? 0) >= 3);
    await sleep(300);
    expect(await published(world)).toEqual({ top: before, reverts: 0 });
    world.node.control({ command: 'clearFaults' });
    await world.indexed(before + 3);
    expect(await published(world)).toEqual({ top: before + 3, reverts: 0 });
    expect(await differences(world)).toEqual([]);
  });

  test.each<[string, Fault, string]>([
    ['changes fees', { kind: 'changed-fee' }, 'its receipts do not match'],
    ['changes signatures', { kind: 'changed-signature' }, 'its transactions do not match'],
    [
      'changes why transactions were reverted',
      { kind: 'changed-revert-reason' },
      'its receipts do not match',
    ],
    [
      'names a Starknet version that there is not',
      { kind: 'changed-header', data: { starknet_version: '0.99.0' } },
      'its header does not have its hash',
    ],
    ...['timestamp', 'new_root', 'state_diff_commitment', 'receipt_commitment', 'block_hash'].map(
      (field): [string, Fault, string] => [
        `changes the ${field} of a header`,
        { kind: 'changed-header', data: { [field]: field === 'timestamp' ? 1_700_000_000 : '0x1234' } },
        'its header does not have its hash',
      ],
    ),
  ])('refuses one block of a node that %s, and recovers', async (_, fault, reason) => {
    const before = world.node.ledger.head();
    const isReverted = (height: number): boolean =>
      world.node.chain?.block(height).txs.some(({ receipt }) => 'revert_reason' in receipt) === true;
    let lie = before + 5;
    while (!isReverted(lie)) lie += 1;
    const heights = { from: lie, to: lie };
    world.node.control({ command: 'fault', fault: { ...fault, methods: BLOCKS, heights } });
    world.node.control({ command: 'advance', blocks: lie + 5 - before });
    await until('the alarm', async () => {
      const { rows } = await world.pool.query<{ detail: string }>(
        "SELECT detail FROM tds.alarms WHERE name = 'ingest.failing:live'",
      );
      return rows[0]?.detail.startsWith(`BLOCK_MISMATCHED: block ${lie}: ${reason}`) === true;
    });
    expect((await published(world)).top).toBeLessThan(lie);
    world.node.control({ command: 'clearFaults' });
    await world.indexed(lie + 5);
    expect(await published(world)).toEqual({ top: lie + 5, reverts: 0 });
    expect(await differences(world)).toEqual([]);
  });

  test('recovers from all of these faults while the chain grows and forks', async () => {
    const kinds = [
      'http429',
      'http503',
      'truncated',
      'null-result',
      'missing-events',
      'wrong-parent',
    ] as const;
    for (let round = 0; round < 12; round += 1) {
      const kind = kinds[round % kinds.length] ?? 'http503';
      world.node.control({ command: 'fault', fault: { kind, times: 3, retryAfter: 0 } });
      if (round % 3 === 2) world.node.control({ command: 'reorg', depth: 1 + round, length: 2 + round });
      else world.node.control({ command: 'advance', blocks: 2 });
      await sleep(150);
    }
    await world.indexed(world.node.ledger.head());
    await until('the log matches the chain', async () => (await differences(world)).length === 0);
  });
});

test('finds out a node that lies about one block in fifty, from the first block on, and verifies all 500', async () => {
  const world = await ingestWorld({ seed: 'one in fifty', initialHead: 500 });
  try {
    world.node.control({ command: 'setL1', height: 400 });
    const lies = Array.from({ length: 11 }, (_, index) => 50 * index);
    for (const [index, height] of lies.entries()) {
      const kind =
        (['changed-event', 'uncounted-event', 'swapped-events'] as const)[index % 3] ?? 'changed-event';
      const heights = { from: height, to: height };
      world.node.control({ command: 'fault', fault: { kind, methods: BLOCKS, heights, times: 3 } });
    }
    const ingester = world.start();
    await world.indexed(500);
    await until('backfill', async () => {
      const { rows } = await world.pool.query(
        "SELECT 1 FROM tds.chunks WHERE status = 'open' AND name != 'live'",
      );
      return rows.length === 0;
    });
    expect(await differences(world)).toEqual([]);
    const messages = await world.read(topics.chainBlocks);
    expect(messages).toHaveLength(501);
    expect(messages.filter(({ block }) => block.event_check !== 'verified')).toEqual([]);
    const transfers = messages.flatMap(({ block }) => world.node.transfersAt(block.height));
    expect([...new Set(transfers.map(({ layout }) => layout))].toSorted()).toEqual(
      [...layoutNames].toSorted(),
    );
    await ingester.stop();
    const { rows } = await world.pool.query(
      "SELECT commitment, outcome, blocks >= 501 AS are_all FROM tds.commitment_checks WHERE outcome != 'refused' ORDER BY 1, 2",
    );
    expect(rows).toEqual(
      ['block_hash', 'events', 'receipts', 'transactions'].map((commitment) => ({
        commitment,
        outcome: 'verified',
        are_all: true,
      })),
    );
    expect(world.node.faults.list().filter(({ struck }) => struck === 0)).toEqual([]);
  } finally {
    await world.close();
  }
});

test('backfill skips no block and publishes no wrong block under any fault', async () => {
  const world = await ingestWorld({ seed: 'faulty history', initialHead: HEAD });
  try {
    world.node.control({ command: 'setL1', height: L1 });
    const at = (from: number, fault: Omit<Fault, 'heights'>): void =>
      void world.node.control({ command: 'fault', fault: { ...fault, heights: { from, to: from + 1 } } });
    at(3, { kind: 'missing-events', times: 2 });
    at(10, { kind: 'null-result', times: 5 });
    at(25, { kind: 'truncated', times: 4 });
    at(40, { kind: 'wrong-parent', times: 4 });
    at(60, { kind: 'missing-transactions', times: 3 });
    at(80, { kind: 'hang', times: 2 });
    at(99, { kind: 'wrong-parent', times: 3 });
    at(100, { kind: 'http429', retryAfter: 1, times: 3 });
    at(120, { kind: 'http503', times: 4 });
    at(L1, { kind: 'missing-events', times: 2 });
    world.start();
    await world.indexed(HEAD);
    await until(
      'backfill',
      async () => {
        const { rows } = await world.pool.query("SELECT 1 FROM tds.chunks WHERE status = 'finished'");
        return rows.length === 2;
      },
      120_000,
    );
    expect(world.node.faults.list().filter(({ struck }) => struck === 0)).toEqual([]);
    expect(await differences(world)).toEqual([]);
    expect((await published(world)).reverts).toBe(0);
    const short = (await world.read(topics.chainBlocks)).filter(({ block }) => {
      const truth = world.node.ledger.at(block.height)?.txs ?? [];
      const counts = (events: readonly { readonly events: readonly unknown[] }[]): string =>
        events.map((one) => one.events.length).join();
      return counts(block.transactions) !== counts(truth);
    });
    expect(short.map(({ block }) => block.height)).toEqual([]);
  } finally {
    await world.close();
  }
});
