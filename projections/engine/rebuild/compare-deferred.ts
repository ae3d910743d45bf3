import { storedCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import type { StoredCheckpoint } from '../../../infra/kafka/checkpoints.ts';
import { topics } from '../../../schemas/topics.ts';
import { withNames } from '../../define.ts';
import { ownerOf } from '../checkpoints.ts';
import { NO_ROWS, isSameSum, sumRow } from '../compare.ts';
import type { Sum } from '../compare.ts';
import { isDue, namesOf } from '../deferred/derive.ts';
import type { DeriveTarget } from '../deferred/derive.ts';
import { derivePassAlone } from '../deferred/run.ts';
import type { ReplayDeps } from './replay.ts';

/** What one `SELECT` of `Deferred.compared` returns from two builds. */
export interface DeferredComparison {
  readonly table: string;
  readonly ours: Sum;
  readonly theirs: Sum;
  /** Blocks were due in the served build, or not read by the shadow build, whenever they were compared. */
  readonly isUnsettled: boolean;
}

/** The builds are compared until they are equal, up to this often. */
const MAX_COMPARISONS = 20;
const BETWEEN_COMPARISONS_MS = 1000;

/**
 * Compares the deferred tables of two builds as wholes: a row belongs to blocks of the whole chain. Where blocks are indexed
 * meanwhile, the builds are brought to the same block and compared again.
 *
 * @param catchUp replays the shadow build up to the served one, and derives what is due
 */
export async function compareDeferred(
  deps: ReplayDeps,
  served: DeriveTarget,
  shadow: DeriveTarget,
  catchUp: () => Promise<void>,
): Promise<DeferredComparison[]> {
  // The passes beside it may be seconds behind, in which other blocks come.
  const deriveServed = async (): Promise<void> => {
    if (served.build.version === served.projection.version) await derivePassAlone(deps, served);
  };
  await deriveServed();
  for (let comparisons = 1; ; comparisons += 1) {
    deps.signal.throwIfAborted();
    const read = await storedCheckpoints(deps.pool, ownerOf(shadow.build), topics.chainBlocks);
    const wasDue = await isDue(deps, served);
    const compared = await compareOnce(deps, served, shadow);
    const areEqual = compared.every(({ ours, theirs }) => isSameSum(ours, theirs));
    if (areEqual || comparisons === MAX_COMPARISONS) {
      const isUnsettled = !areEqual && (wasDue || (await isDue(deps, served)) || (await isPast(deps, read)));
      return compared.map((one) => ({ ...one, isUnsettled }));
    }
    await deps.clock.sleep(BETWEEN_COMPARISONS_MS, deps.signal);
    await deriveServed();
    await catchUp();
  }
}

/** Whether the log has messages after these checkpoints: the tables that are derived from may have their rows. */
async function isPast({ kafka }: ReplayDeps, read: readonly StoredCheckpoint[]): Promise<boolean> {
  const next = new Map(read.map(({ partition, nextOffset }) => [partition, nextOffset]));
  return (await kafka.offsets(topics.chainBlocks)).some(
    ({ partition, high }) => high > (next.get(partition) ?? 0),
  );
}

async function compareOnce(
  deps: ReplayDeps,
  served: DeriveTarget,
  shadow: DeriveTarget,
): Promise<Omit<DeferredComparison, 'isUnsettled'>[]> {
  const { compared } = shadow.projection.deferred;
  // The sources of both are the same, so that both end at the same block.
  const names = {
    ours: await namesOf(deps, { ...served, sources: shadow.sources ?? [] }),
    theirs: await namesOf(deps, shadow),
  };
  const comparisons = [];
  for (const [table, select] of Object.entries(compared)) {
    const sumOf = async (of: Readonly<Record<string, string>>): Promise<Sum> => {
      const sql = `SELECT count() AS rows, toString(sum(cityHash64(*))) AS checksum FROM (${withNames(select, of)})`;
      const query = { name: 'compare.deferred', sql, row: sumRow };
      const [sum] = await deps.clickhouse.rows(query, {}, { settings: { max_threads: 1 } });
      return sum ?? NO_ROWS;
    };
    comparisons.push({ table, ours: await sumOf(names.ours), theirs: await sumOf(names.theirs) });
  }
  return comparisons;
}
