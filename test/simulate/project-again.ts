import type { LogMessage } from '../../infra/kafka/client.ts';
import { topics } from '../../schemas/topics.ts';
import type { Random } from '../support/random.ts';
import { createStage } from './stage.ts';
import { differences, rowText, tableNames } from './verdict.ts';
import type { SimWorld } from './world.ts';

const LIMIT_STEPS = 300;
const DERIVED = new Set(['account_ledger_ranges', 'transfer_counts', 'indexed_block_ranges']);
const PLACE = new Set(['log_partition', 'log_offset']);
const PLACE_AND_VERSION = new Set([...PLACE, 'seq']);

/**
 * The same log from its first message on: by another number of processes, in other batches, with some messages twice and
 * some later than they were. The tables come out the same, versions included; what is derived has the versions of its own
 * log.
 */
export async function projectAgain(world: SimWorld): Promise<string[]> {
  const stage = createStage({ seed: world.seed ^ 0x5eed });
  const { random, clock, broker } = stage;
  const topic = topics.chainBlocks;
  for (let partition = 0; partition < topic.partitions; partition += 1) {
    for (const { key, value } of disturbed(world.broker.read(topic, partition), random)) {
      broker.append(topic, partition, key, value);
    }
  }
  const processes = 1 + random.below(3);
  for (let index = 0; index < processes; index += 1) {
    stage.startProjector({
      rows: random.pick([1, 17, 300, 50_000]),
      waitMs: random.pick([5, 100]),
      gapMs: 0,
    });
  }
  for (let step = 0; step < LIMIT_STEPS && !stage.isCaughtUp(); step += 1) {
    await clock.run(1000);
    stage.skipHalts();
  }
  if (!stage.isCaughtUp()) return ['projecting the log again did not come to its end', ...stage.breaches];
  const breaches = tableNames.flatMap((name) => {
    const text = (from: Pick<SimWorld, 'servedTable'>): string[] =>
      from
        .servedTable(name)
        .final()
        .map((row) => rowText(row, DERIVED.has(name) ? PLACE_AND_VERSION : PLACE));
    return differences(`${name} from the log again`, text(stage), text(world));
  });
  return [...breaches, ...stage.breaches];
}

/** With repeats a little later, and some messages moved behind their successors. */
function disturbed(messages: readonly LogMessage[], random: Random): LogMessage[] {
  const placed = messages.flatMap((message, index) => {
    const own = { at: random.chance(50) ? index + random.below(10) : index, message };
    return random.chance(100) ? [own, { at: index + random.below(20), message }] : [own];
  });
  return placed.toSorted((a, b) => a.at - b.at).map(({ message }) => message);
}
