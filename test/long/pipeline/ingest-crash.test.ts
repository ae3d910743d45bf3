import { afterEach, expect, test } from 'vitest';

import type { IngestDeps } from '../../../pipeline/ingest/ports.ts';
import { requestRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import type { ContractFacts } from '../../../schemas/messages/chain-blocks.ts';
import { topics } from '../../../schemas/topics.ts';
import { foldLog } from '../../support/fold-log.ts';
import { differences, ingestWorld, until } from '../../support/ingest-world.ts';
import type { IngestWorld } from '../../support/ingest-world.ts';

let world: IngestWorld;
afterEach(() => world.close());

type Part =
  | 'record'
  | 'plan'
  | 'moveCursor'
  | 'markForRevert'
  | 'deleteReverted'
  | 'setFinal'
  | 'publish'
  | 'planRepair'
  | 'finishRepair';

/** A process that is killed at a call, before or after it takes effect: none of its later calls has an effect. */
function killedAt(part: Part, moment: 'before' | 'after', armed: () => boolean) {
  let killed = false;
  const dead = new Promise<never>(() => {});
  const through = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
    if (killed) return await dead;
    if (name !== part || !armed()) {
      const result = await work();
      return killed ? await dead : result;
    }
    killed = true;
    if (moment === 'after') await work();
    return await dead;
  };
  const wrap = <T extends object>(target: T): T =>
    new Proxy(target, {
      get(object, name) {
        const method: unknown = Reflect.get(object, name);
        if (typeof method !== 'function') return method;
        return (...args: unknown[]) =>
          through(String(name), async () => (await Reflect.apply(method, object, args)) as unknown);
      },
    });
  return {
    isKilled: () => killed,
    deps: ({ store, publisher, node }: IngestDeps) => ({
      store: wrap(store),
      publisher: wrap(publisher),
      node: wrap(node),
    }),
  };
}

/** Starts a process on a chain, final up to 10, and once that is indexed kills it at its next such call. */
async function armedAt(
  part: Part,
  moment: 'before' | 'after',
  chain: { readonly seed: string; readonly initialHead: number },
): Promise<ReturnType<typeof killedAt>> {
  world = await ingestWorld(chain);
  world.node.control({ command: 'setL1', height: 10 });
  let armed = false;
  const first = killedAt(part, moment, () => armed);
  world.start({ deps: first.deps });
  await world.indexed(chain.initialHead);
  armed = true;
  return first;
}

const moments = ['before', 'after'] as const;
const whileFollowing = (['record', 'publish', 'moveCursor', 'setFinal'] as const).flatMap((part) =>
  moments.map((moment) => [moment, part] as const),
);
const whileReverting = (
  ['markForRevert', 'publish', 'deleteReverted', 'record', 'moveCursor'] as const
).flatMap((part) => moments.map((moment) => [moment, part] as const));

test.each(whileFollowing)(
  'a kill %s %s, followed by a reorg before the restart, leaves the canonical chain',
  async (moment, part) => {
    const first = await armedAt(part, moment, { seed: `kill-${part}-${moment}`, initialHead: 30 });
    world.node.control({ command: 'advance', blocks: 3 });
    if (part === 'setFinal') world.node.control({ command: 'setL1', height: 15 });
    await until('the process is killed', async () => first.isKilled());
    world.node.control({ command: 'reorg', depth: 5, length: 6 });
    world.start();
    await world.indexed(34);
    expect(await differences(world)).toEqual([]);
  },
);

test.each([
  ['after', 'record'],
  ['after', 'publish'],
  ['before', 'moveCursor'],
] as const)(
  'a kill %s %s, followed by a restart on the same chain, reverts nothing',
  async (moment, part) => {
    const first = await armedAt(part, moment, { seed: `same-${part}-${moment}`, initialHead: 30 });
    world.node.control({ command: 'advance', blocks: 1 });
    await until('the process is killed', async () => first.isKilled());
    world.start();
    await world.indexed(31);
    expect(await differences(world)).toEqual([]);
    const messages = await world.read(topics.chainBlocks);
    expect(messages.filter(({ type }) => type === 'block.reverted')).toEqual([]);
  },
);

test.each(whileReverting)(
  'a kill %s %s during a reorg, followed by a return to the first fork, leaves the canonical chain',
  async (moment, part) => {
    const first = await armedAt(part, moment, { seed: `back-${part}-${moment}`, initialHead: 80 });
    world.node.control({ command: 'reorg', depth: 40, length: 42 });
    await until('the process is killed', async () => first.isKilled());
    world.node.control({ command: 'switch', fork: 0 });
    world.node.control({ command: 'advance', blocks: 5 });
    world.start();
    await world.indexed(85);
    expect(await differences(world)).toEqual([]);
  },
);

test.each([
  ['after', 'plan', 1],
  ['after', 'publish', 6],
  ['before', 'moveCursor', 2],
] as const)('a kill %s %s in backfill leaves no gap', async (moment, part, calls) => {
  world = await ingestWorld({ seed: `backfill-${part}-${moment}`, initialHead: 130 });
  world.node.control({ command: 'setL1', height: 120 });
  let seen = 0;
  const first = killedAt(part, moment, () => (seen += 1) > calls);
  world.start({ deps: first.deps });
  await until('the process is killed', async () => first.isKilled());
  world.start();
  await world.indexed(130);
  await until('backfill', async () => {
    const { rows } = await world.pool.query("SELECT 1 FROM tds.chunks WHERE status = 'finished'");
    return rows.length === 2;
  });
  expect(await differences(world)).toEqual([]);
});

test('a repair reverts blocks published with previous contract facts, in finished chunks and in live', async () => {
  world = await ingestWorld({ seed: 'repair', initialHead: 60 });
  world.node.control({ command: 'setL1', height: 40 });
  let standard: ContractFacts['standard'] = 'unknown';
  world.start({
    deps: () => ({
      standards: {
        resolve: async (contracts) => new Map(contracts.map((one) => [one, { standard, class_hash: null }])),
      },
      createBlockReader: () => async (height) => {
        const all = await world.read(topics.chainBlocks);
        const newest = all
          .filter(({ block }) => block.height === height)
          .toSorted((a, b) => b.seq - a.seq)[0];
        return newest?.type === 'block.accepted' ? newest : null;
      },
    }),
  });
  await world.indexed(60);
  await until('backfill', async () => {
    const { rows } = await world.pool.query("SELECT 1 FROM tds.chunks WHERE status = 'finished'");
    return rows.length === 1;
  });
  standard = 'erc20';
  const heights = [7, 55, 900];
  expect(await requestRepairs(world.pool, heights, 'test')).toBe(3);
  await until('repairs done', async () => {
    const { rows } = await world.pool.query('SELECT 1 FROM tds.repairs WHERE done_at IS NULL');
    return rows.length === 0;
  });

  const messages = await world.read(topics.chainBlocks);
  for (const height of [7, 55]) {
    const versions = messages
      .filter(({ block }) => block.height === height)
      .toSorted((a, b) => a.seq - b.seq)
      .map(({ type, cause, contracts }) => [
        type,
        cause,
        ...new Set(Object.values(contracts).map((one) => one.standard)),
      ]);
    expect(versions).toEqual([
      ['block.accepted', 'new', 'unknown'],
      ['block.reverted', 'repair', 'unknown'],
      ['block.accepted', 'repair', 'erc20'],
    ]);
  }
  expect(foldLog(messages).breaches).toEqual([]);
  expect(await differences(world)).toEqual([]);

  // A later reorg reverts the repaired block.
  world.node.control({ command: 'reorg', depth: 10, length: 11 });
  await world.indexed(61);
  expect(await differences(world)).toEqual([]);
});

test.each([
  ['after', 'planRepair', 1],
  ['before', 'finishRepair', 2],
] as const)(
  'a kill %s %s of an incomplete block, followed by a reorg, leaves the canonical chain',
  async (moment, part, publications) => {
    // JSON-RPC 0.8: headers have no event count.
    world = await ingestWorld({ seed: `short-${part}`, initialHead: 30, specVersion: '0.8' });
    world.node.control({ command: 'setL1', height: 10 });
    world.node.control({
      command: 'fault',
      fault: { kind: 'missing-events', heights: { from: 25, to: 25 } },
    });
    const first = killedAt(part, moment, () => true);
    world.start({ deps: first.deps });
    await world.indexed(30);
    world.node.control({ command: 'clearFaults' });
    await requestRepairs(world.pool, [25], 'test', { reread: true });
    await until('the process is killed', async () => first.isKilled());
    // Published incomplete, and again complete if the process got that far.
    const sizes = (await world.read(topics.chainBlocks))
      .filter(({ type, block }) => type === 'block.accepted' && block.height === 25)
      .map(({ block }) => block.transactions.flatMap(({ events }) => events).length);
    const complete = Number(world.node.ledger.at(25)?.counts['event_count']);
    expect(sizes).toEqual([complete - 1, complete].slice(0, publications));

    world.node.control({ command: 'reorg', depth: 10, length: 11 });
    world.start();
    await world.indexed(31);
    expect(await differences(world)).toEqual([]);
  },
);

test('two ingesters share the chunks, and one takes over the chunks of the other', async () => {
  world = await ingestWorld({ seed: 'two', initialHead: 90 });
  world.node.control({ command: 'setL1', height: 80 });
  const settings = { backfillChunkBlocks: 10, backfillConcurrency: 1 };
  const first = world.start({ settings });
  world.start({ settings });
  await world.indexed(90);
  await first.stop();
  world.node.control({ command: 'advance', blocks: 5 });
  await world.indexed(95);
  await until('backfill', async () => {
    const { rows } = await world.pool.query("SELECT 1 FROM tds.chunks WHERE status = 'finished'");
    return rows.length === 9;
  });
  expect(await differences(world)).toEqual([]);
  expect(await world.read(topics.chainBlocks)).toHaveLength(96);
});

test('a stale writer has no effect after another process took the lease of its chunk', async () => {
  world = await ingestWorld({ seed: 'zombie', initialHead: 30 });
  let isFrozen = false;
  const thaw = Promise.withResolvers<void>();
  // Frozen right before it publishes, for longer than its lease.
  world.start({
    deps: ({ publisher, store }) => ({
      publisher: {
        async publish(topic, messages) {
          if (isFrozen && topic.name === topics.chainBlocks.name) await thaw.promise;
          return await publisher.publish(topic, messages);
        },
      },
      store: new Proxy(store, {
        get(object, name: keyof typeof store) {
          if (name === 'renew') return async () => (isFrozen ? await thaw.promise : undefined);
          return object[name];
        },
      }),
    }),
  });
  await world.indexed(30);
  isFrozen = true;
  world.node.control({ command: 'advance', blocks: 1 });
  await new Promise((resolve) => setTimeout(resolve, 2500));
  world.node.control({ command: 'reorg', depth: 3, length: 4 });
  world.start();
  await world.indexed(32);
  isFrozen = false;
  thaw.resolve();
  await new Promise((resolve) => setTimeout(resolve, 500));
  world.node.control({ command: 'advance', blocks: 1 });
  await world.indexed(33);
  expect(await differences(world)).toEqual([]);
});
