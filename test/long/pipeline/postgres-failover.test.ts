import { afterEach, expect, test } from 'vitest';

import { topics } from '../../../schemas/topics.ts';
import { faultWorld } from '../../support/faults/world.ts';
import { differences, ingestWorld, until } from '../../support/ingest-world.ts';
import type { IngestWorld } from '../../support/ingest-world.ts';
import { replicaOf } from '../../support/postgres-replica.ts';

/** PostgreSQL fails over to a replica that lacks its last transactions, while Kafka keeps what they led to. */

let world: IngestWorld | null = null;
afterEach(async () => {
  await world?.close();
  world = null;
});

/** What happens on the chain after the replica was cut off; the last one also after the fail-over. */
const histories = {
  'new blocks': { lost: [{ command: 'advance', blocks: 6 }], later: { command: 'advance', blocks: 2 } },
  'a reorg': {
    lost: [{ command: 'reorg', depth: 8, length: 12 }],
    later: { command: 'advance', blocks: 2 },
  },
  'new blocks, replaced during the fail-over': {
    lost: [{ command: 'advance', blocks: 6 }],
    later: { command: 'reorg', depth: 9, length: 12 },
  },
  'a reorg, taken back during the fail-over': {
    lost: [{ command: 'reorg', depth: 8, length: 12 }],
    later: { command: 'switch', fork: 0 },
  },
} as const;

async function untilCanonical(ingest: IngestWorld): Promise<void> {
  await ingest.indexed(ingest.node.ledger.head());
  await until('the log is the canonical chain', async () => (await differences(ingest)).length === 0);
}

const cases = Object.entries(histories).flatMap(([history, events]) =>
  (['the writer', 'another process'] as const).map((by) => ({ history, by, ...events })),
);

test.each(cases)(
  '$by leaves the canonical chain in the log after a fail-over that lost $history',
  async ({ history, by, lost, later }) => {
    world = await ingestWorld({ seed: `failover-${history}`, initialHead: 40, malformed: 0.1 });
    const { node, pool } = world;
    node.control({ command: 'setL1', height: 10 });
    const first = world.start();
    await world.indexed(40);
    const replica = await replicaOf(pool);
    for (const event of lost) node.control(event);
    const top = node.ledger.head();
    await until('the lost blocks are in the log', async () => {
      const { rows } = await pool.query<{ cursor: number; hash: string | null }>(
        `SELECT cursor, (SELECT hash FROM tds.recorded_blocks WHERE height = $1) AS hash
       FROM tds.chunks WHERE name = 'live'`,
        [top],
      );
      const row = rows[0];
      return row?.cursor === top + 1 && BigInt(row.hash ?? 0) === BigInt(node.ledger.at(top)?.hash ?? 1);
    });

    if (by === 'another process') await first.stop();
    await replica.promote();
    node.control(later);
    if (by === 'another process') world.start();
    // The restored cursor may be at the head already, before the log was compared.
    await untilCanonical(world);
    // The records are the log's, so the next reorg finds what it must revert.
    node.control({ command: 'reorg', depth: 15, length: 17 });
    await world.indexed(node.ledger.head());
    expect(await differences(world)).toEqual([]);
  },
);

test('missing recorded blocks that the log does not explain halt the chunk, and are named', async () => {
  world = await ingestWorld({ seed: 'gap', initialHead: 40 });
  const { node, pool } = world;
  node.control({ command: 'setL1', height: 10 });
  const first = world.start();
  await world.indexed(40);
  await first.stop();
  await pool.query('DELETE FROM tds.recorded_blocks WHERE height BETWEEN 20 AND 22');
  await pool.query("UPDATE tds.chunks SET updated_at = now() + interval '1 day'");
  node.control({ command: 'reorg', depth: 25, length: 27 });
  const before = await world.read(topics.chainBlocks);
  world.start();
  await until('the alarm', async () => {
    const { rows } = await pool.query<{ detail: string }>(
      "SELECT detail FROM tds.alarms WHERE name = 'ingest.failing:live'",
    );
    return rows[0]?.detail.includes('no recorded block at 3 heights from 20 to 22') === true;
  });
  expect(await world.read(topics.chainBlocks)).toHaveLength(before.length);

  // The remedy of docs/operations.md: have the log compared from before the missing blocks on.
  await pool.query("UPDATE tds.chunks SET updated_at = '2020-01-01' WHERE name = 'live'");
  world.start();
  await world.indexed(node.ledger.head());
  expect(await differences(world)).toEqual([]);
});

test('all tables match the canonical chain after a fail-over during a reorg', async () => {
  const whole = await faultWorld({ seed: 'failover', initialHead: 120 });
  const { node, pool } = whole;
  try {
    node.control({ command: 'setL1', height: 60 });
    await whole.start('ingest');
    await whole.start('project');
    await whole.settled();
    const replica = await replicaOf(pool);
    node.control({ command: 'advance', blocks: 10 });
    await whole.settled();
    node.control({ command: 'reorg', depth: 25, length: 30 });
    await until(
      'the reorg is under way',
      async () => {
        const { rows } = await pool.query<{ cursor: number }>(
          "SELECT cursor FROM tds.chunks WHERE name = 'live'",
        );
        return (rows[0]?.cursor ?? 0) > 107;
      },
      60_000,
    );
    await replica.promote();
    node.control({ command: 'advance', blocks: 3 });
    await whole.settled();
    expect(await whole.differences()).toEqual([]);
  } finally {
    await whole.close();
  }
});
