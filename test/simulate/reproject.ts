import type { LogMessage } from '../../infra/kafka/client.ts';
import { topics } from '../../schemas/topics.ts';
import type { Random } from '../support/random.ts';
import { createStage } from './stage.ts';
import { differences, isRevertedPoison, rowText, tableNames } from './checks.ts';
import type { SimWorld } from './world.ts';

const LIMIT_STEPS = 300;
const DERIVED = new Set(['account_ledger_ranges', 'transfer_counts', 'indexed_block_ranges']);
const OFFSET_COLUMNS = new Set(['log_partition', 'log_offset']);
const OFFSET_AND_VERSION_COLUMNS = new Set([...OFFSET_COLUMNS, 'seq']);

/**
 * Projects the same log again from its first message, with another number of processes, other batch sizes, and some messages
 * repeated or delayed. The tables must be equal, versions included; derived tables have versions of their own log.
 */
export async function checkReprojection(world: SimWorld): Promise<string[]> {
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
  if (!stage.isCaughtUp()) return ['the second projection of the log did not catch up', ...stage.violations];
  const violations = tableNames.flatMap((name) => {
    const text = (from: Pick<SimWorld, 'servedTable'>): string[] =>
      from
        .servedTable(name)
        .final()
        .filter((row) => !isRevertedPoison(world, name, row))
        .map((row) => rowText(row, DERIVED.has(name) ? OFFSET_AND_VERSION_COLUMNS : OFFSET_COLUMNS));
    return differences(`${name} projected again`, text(stage), text(world));
  });
  return [...violations, ...stage.violations];
}

/** Repeats some messages a little later, and moves some behind their successors. */
function disturbed(messages: readonly LogMessage[], random: Random): LogMessage[] {
  const placed = messages.flatMap((message, index) => {
    const own = { at: random.chance(50) ? index + random.below(10) : index, message };
    return random.chance(100) ? [own, { at: index + random.below(20), message }] : [own];
  });
  return placed.toSorted((a, b) => a.at - b.at).map(({ message }) => message);
}
