import { expect, test } from 'vitest';

import { foldLog } from '../../../support/fold-log.ts';
import { createSimWorld } from '../../../support/sim-world.ts';

/*
 * The real ingester on virtual time: forks, lagging nodes, lost answers and deaths at every call, by seed. Whatever
 * happened, once it is calm the log says the chain in force, every message about a height has a seq of its own, and
 * the quarantine holds open what that chain has. `SIM_FROM` and `SIM_SEEDS` choose others.
 */
const first = Number(process.env['SIM_FROM'] ?? 1);
const seeds = Array.from({ length: Number(process.env['SIM_SEEDS'] ?? 100) }, (_, index) => first + index);

async function storm(seed: number): Promise<string[]> {
  const world = createSimWorld(seed);
  const { random, clock, chain, store, weather, coin } = world;
  chain.acceptOnL1(random.below(20));
  weather.faults = [0, 10, 60][random.below(3)] ?? 0;
  weather.kills = [0, 3, 15][random.below(3)] ?? 0;
  weather.mixedViews = [0, 20, 200][random.below(3)] ?? 0;
  const events = [
    () => chain.advance(1 + random.below(4)),
    () => chain.advance(1),
    () => chain.reorg(1 + random.below(3), 1 + random.below(4)),
    () => chain.reorg(1 + random.below(30), 1 + random.below(35)),
    () => chain.goBack((count) => random.below(count)),
    () => chain.acceptOnL1(chain.l1() + random.below(6)),
    () => {
      coin.standard = random.pick(['unknown', 'erc20', 'erc721']);
      // Also above the head: what is fetched ahead may rest on the old answer.
      for (let height = 0; height < chain.blocks().length + 60; height += 1) store.requestRepair(height);
    },
  ];
  for (let round = 0; round < 40; round += 1) {
    if (!world.isRunning() || random.below(15) === 0) world.start();
    await clock.run(random.below(3000));
    random.pick(events)();
  }
  Object.assign(weather, { faults: 0, kills: 0, mixedViews: 0 });
  if (!world.isRunning()) world.start();
  chain.advance(1);
  await clock.run(120_000);
  const breaches = verdict(world);
  await world.stop();
  return breaches;
}

function verdict({ log, quarantine, chain, store, coin }: ReturnType<typeof createSimWorld>): string[] {
  const { accepted, breaches } = foldLog(log);
  const truth = chain.blocks();
  for (const { height, hash } of truth) {
    if (accepted.get(height) !== hash) breaches.push(`${height}: ${accepted.get(height)}, not ${hash}`);
    accepted.delete(height);
  }
  for (const height of accepted.keys()) breaches.push(`${height} is above the chain`);
  if (store.pendingCount() > 0) breaches.push(`${store.pendingCount()} repairs are not done`);
  for (const { height } of truth) {
    const newest = log.filter(({ block }) => block.height === height).toSorted((a, b) => b.seq - a.seq)[0];
    for (const { standard } of Object.values(newest?.contracts ?? {})) {
      if (standard !== coin.standard)
        breaches.push(`${height}: published as ${standard}, it is ${coin.standard}`);
    }
  }
  const open = new Set<string>();
  for (const message of quarantine) {
    if (message.type === 'quarantine.resolved') open.delete(message.id);
    else open.add(message.id);
  }
  const odd = truth.filter(({ height }) => height % 5 === 0).map(({ hash }) => `${hash}:1`);
  if ([...open].toSorted().join() !== odd.toSorted().join()) breaches.push(`quarantine: ${[...open].join()}`);
  if (store.alarms.size > 0) breaches.push(JSON.stringify([...store.alarms]));
  return breaches;
}

test('the log says the chain in force after any storm', { timeout: 600_000 }, async () => {
  const failed: Record<string, string[]> = {};
  for (const seed of seeds) {
    const breaches = await storm(seed);
    if (breaches.length > 0) failed[`seed ${seed}`] = breaches;
  }
  expect(failed).toEqual({});
});
