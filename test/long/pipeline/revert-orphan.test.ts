import { afterEach, expect, test } from 'vitest';

import type { IngestDeps } from '../../../pipeline/ingest/ports.ts';
import { revertOrphan } from '../../../pipeline/ingest/reconcile/revert.ts';
import { requestRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { parseFelt, toFelt } from '../../../schemas/felt.ts';
import type { BlockBody, ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { accepted, makeBlock } from '../../support/chain-messages.ts';
import { differences, ingestWorld, until } from '../../support/ingest-world.ts';
import type { IngestWorld } from '../../support/ingest-world.ts';

let world: IngestWorld;
afterEach(() => world.close());

/** Live from 11 on, final up to 25, head 40; the ingester runs. */
async function startWorld() {
  world = await ingestWorld({ seed: 'orphan', initialHead: 40 });
  const { node, pool } = world;
  node.control({ command: 'setL1', height: 10 });
  let own: IngestDeps | null = null;
  const start = () =>
    world.start({
      deps: (deps) => {
        own = deps;
        return {};
      },
    });
  const ingester = start();
  await world.indexed(40);
  node.control({ command: 'setL1', height: 25 });
  await until('L1 known', async () => {
    const { rows } = await pool.query("SELECT 1 FROM tds.chunks WHERE name = 'live' AND final_height = 25");
    return rows.length === 1;
  });
  const revert = async (height: number, hash: string) => {
    if (own === null) throw new Error('the ingester was not started');
    const deps = {
      ...own,
      store: createIngestStore(pool),
      settings: { holder: 'tds-revert', leaseMs: 3000 },
      requestRepairs: (heights: readonly number[]) =>
        requestRepairs(pool, heights, 'test', { reread: true, replacesOrphan: true }),
    };
    return await revertOrphan(deps, { height, hash: parseFelt(hash) ?? toFelt(0n) });
  };
  return { revert, ingester, start };
}

/** Appends blocks that no ingester knows of. */
async function append(...blocks: BlockBody[]): Promise<void> {
  const publisher = world.kafka.publisher();
  await publisher.publish(
    topics.chainBlocks,
    blocks.map((block) => ({
      value: accepted(block, Date.now()),
      key: String(block.height),
      partition: partitionOfHeight(block.height),
    })),
  );
  await publisher.close();
}

const orphan = (height: number): BlockBody => makeBlock({ height, fork: 9, transactions: [] });

async function newestAbout(height: number): Promise<ChainBlocksMessage | undefined> {
  const all = (await world.read(topics.chainBlocks)).filter(({ block }) => block.height === height);
  return all.toSorted((a, b) => b.seq - a.seq)[0];
}

/** Hash of the block that the newest message about a height accepts. */
async function newestAccepted(height: number): Promise<bigint | null> {
  const newest = await newestAbout(height);
  return newest?.type === 'block.accepted' ? BigInt(newest.block.hash) : null;
}

const canonical = (height: number): bigint => BigInt(world.node.ledger.at(height)?.hash ?? 0);

test('reverts an orphan with the blocks on top of it, while the ingester runs, once', async () => {
  const { revert } = await startWorld();
  await append(orphan(35), orphan(36));
  expect(await differences(world)).not.toEqual([]);
  expect(await revert(35, orphan(35).hash)).toEqual({ heights: [35, 36] });
  world.node.control({ command: 'advance', blocks: 2 });
  await world.indexed(42);
  expect(await differences(world)).toEqual([]);
  for (const height of [35, 36]) expect(await newestAccepted(height)).toBe(canonical(height));
  expect(await revert(35, orphan(35).hash)).toEqual({ heights: [] });
  expect(await differences(world)).toEqual([]);
});

test('reverts an orphan at a final height, and has the final block published again', async () => {
  const { revert } = await startWorld();
  await append(orphan(20));
  expect(await revert(20, orphan(20).hash)).toEqual({ heights: [20] });
  await until('the final block is published again', async () => (await newestAccepted(20)) === canonical(20));
  // Matchers skip repairs.
  expect((await newestAbout(20))?.cause).toBe('reorg');
  expect(await differences(world)).toEqual([]);
});

test('refuses an orphan on top of others, and names the lowest of these', async () => {
  const { revert } = await startWorld();
  await append(orphan(20), orphan(21), orphan(22));
  await expect(revert(22, orphan(22).hash)).rejects.toMatchObject({
    code: 'CONFLICT',
    message: expect.stringContaining(`tds revert 20 ${orphan(20).hash}`),
  });
  expect(await newestAccepted(22)).toBe(BigInt(orphan(22).hash));
});

test('has final blocks published again from the highest down', async () => {
  const { revert } = await startWorld();
  await append(orphan(20), orphan(21), orphan(22));
  expect(await revert(20, orphan(20).hash)).toEqual({ heights: [20, 21, 22] });
  await until('all are published again', async () => {
    const newest = await Promise.all([20, 21, 22].map(newestAccepted));
    return newest.every((hash, i) => hash === canonical(20 + i));
  });
  const all = await world.read(topics.chainBlocks);
  const replacing = all.filter(({ type, cause }) => type === 'block.accepted' && cause === 'reorg');
  expect(replacing.map(({ block }) => block.height)).toEqual([22, 21, 20]);
});

test('reverts the newest final block, which L1 never accepted, and the ingester goes on', async () => {
  const { revert, ingester, start } = await startWorld();
  await ingester.stop();
  const { node, pool } = world;
  const head = node.ledger.head();
  const { hash = '' } = node.ledger.at(head) ?? {};
  // As after false answers about L1.
  await pool.query("DELETE FROM tds.recorded_blocks WHERE chunk = 'live'");
  await pool.query("UPDATE tds.chunks SET final_height = $1, final_hash = $2 WHERE name = 'live'", [
    head,
    toFelt(BigInt(hash)),
  ]);
  node.control({ command: 'reorg', depth: 1, length: 3 });
  node.control({ command: 'setL1', height: head });
  const halted = start();
  await until('the alarm', async () => {
    const { rows } = await pool.query("SELECT 1 FROM tds.alarms WHERE name = 'ingest.failing:live'");
    return rows.length === 1;
  });
  expect(await revert(head, hash)).toEqual({ heights: [head] });
  await halted.stop();
  start();
  await world.indexed(node.ledger.head());
  await until(
    'the final block is published again',
    async () => (await newestAccepted(head)) === canonical(head),
  );
  expect(await differences(world)).toEqual([]);
});

test('refuses a block that the chain has, and one that the log does not have', async () => {
  const { revert } = await startWorld();
  const before = await world.read(topics.chainBlocks);
  for (const height of [20, 35])
    await expect(revert(height, world.node.ledger.at(height)?.hash ?? '')).rejects.toMatchObject({
      code: 'CONFLICT',
    });
  await expect(revert(35, orphan(35).hash)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await expect(revert(60, orphan(60).hash)).rejects.toMatchObject({ code: 'CONFLICT' });
  expect(await world.read(topics.chainBlocks)).toHaveLength(before.length);
});
