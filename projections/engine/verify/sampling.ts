import { z } from 'zod';

import type { Clock } from '../../../infra/clock.ts';
import type { RowReader } from '../../../infra/clickhouse/client.ts';
import { insertAlarms } from '../../../infra/health/alarms.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { startLoop } from '../../../infra/loop.ts';
import type { Loop } from '../../../infra/loop.ts';
import { metricsIn } from '../../../infra/metrics.ts';
import type { Counter, Registry } from '../../../infra/metrics.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { servedBuilds } from '../../served.ts';
import { blockAtOrBelow, differenceInBlock, lowestIndexed } from './sample.ts';
import type { SampledBlock } from './sample.ts';

interface Options {
  readonly pool: Pool;
  readonly clickhouse: RowReader;
  readonly kafka: Pick<Kafka, 'readRange'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly everyMs?: number;
}

/** A block takes some 11 ms of this process and 37 ms of the embedded ClickHouse: 0.6 % of a core, for two a round. */
const EVERY_MS = 15_000;
/** Reading one message needs a consumer of its own, which is most of the cost, so only one round in so many does it. */
const ROUNDS_PER_LOG = 6;
/** Blocks this close to the newest one may still be written, or reverted. */
const UNSETTLED = 16;
/** A difference counts when the same block still has it after so long. */
const CONFIRM_MS = 3000;
const MAX_ALARMS = 20;
const HIGHEST = 0xffff_fffe;

const alarmName = (height: number): string => `verify.block:${height}`;
const alarmRow = z.object({ name: z.string() });

interface Sampler extends Options {
  readonly blocks: Counter;
  readonly differences: Counter;
  readonly signal: AbortSignal;
}

/**
 * Compares a block of any height and a recent one by a few reads by key, at random intervals. A difference raises an
 * alarm that names the block, until the block is right again.
 */
export function startSampling(options: Options): Loop {
  const { clock, log, metrics, everyMs = EVERY_MS } = options;
  const { counter } = metricsIn(metrics);
  const counters = {
    blocks: counter('tds_verify_blocks_total', 'Blocks checked by sampling'),
    differences: counter('tds_verify_differences_total', 'Blocks found inconsistent by sampling'),
  };
  const sample = async (sampler: Sampler, kafka: Options['kafka'] | null): Promise<void> => {
    try {
      for (const height of await chooseHeights(sampler)) {
        if (!sampler.signal.aborted) await checkBlock(sampler, height, kafka);
      }
    } catch (error) {
      // An unavailable store raises an alarm elsewhere.
      log.debug({ err: error }, 'could not sample blocks');
    }
  };
  let samples = -1;
  return startLoop({
    clock,
    async round(signal) {
      samples += 1;
      // The first round only waits.
      if (samples > 0)
        await sample(
          { ...options, ...counters, signal },
          samples % ROUNDS_PER_LOG === 0 ? options.kafka : null,
        );
      return everyMs * (0.5 + clock.random());
    },
  });
}

/** A height with an alarm, one of any height, and a recent one. */
async function chooseHeights({ pool, clickhouse, clock }: Sampler): Promise<number[]> {
  const alarmed = await sqlRows(
    pool,
    alarmRow,
    "SELECT name FROM tds.alarms WHERE name LIKE 'verify.block:%' ORDER BY random() LIMIT 1",
  );
  const deps = { clickhouse, served: await servedBuilds(pool) };
  const newest = await blockAtOrBelow(deps, HIGHEST);
  const lowest = await lowestIndexed(deps);
  if (newest === null || lowest === null) return [];
  const any = lowest + Math.floor(clock.random() * (newest.height - lowest + 1));
  const recent = newest.height - UNSETTLED - Math.floor(clock.random() * UNSETTLED);
  return [
    ...alarmed.map(({ name }) => Number(name.split(':')[1])),
    Math.max(lowest, Math.min(any, newest.height - UNSETTLED)),
    Math.max(lowest, recent),
  ];
}

async function checkBlock(sampler: Sampler, height: number, kafka: Options['kafka'] | null): Promise<void> {
  const { pool, clock, signal, log, blocks, differences } = sampler;
  const first = await sampleBlock(sampler, height, kafka);
  if (first === null) return;
  const { block } = first;
  let { difference } = first;
  if (difference !== null) {
    await clock.sleep(CONFIRM_MS, signal);
    const second = signal.aborted ? null : await sampleBlock(sampler, height, kafka);
    // Another block, or the same one after a repair: the difference was a write in progress.
    if (second === null || second.block.seq !== block.seq) return;
    difference = second.difference;
  }
  blocks.inc();
  await recordSample(pool, block.height, difference !== null);
  // Nothing is served of a height that is not indexed (any more).
  if (block.height !== height) await clearAlarm(pool, height);
  if (difference === null) return await clearAlarm(pool, block.height);
  differences.inc();
  log.error({ block: block.height, difference }, 'sampled block is inconsistent');
  const remedy = `\`tds verify --from ${block.height} --to ${block.height} --repair\``;
  await pool.query(
    insertAlarms(
      "SELECT $1, $2 WHERE (SELECT count(*) FROM tds.alarms WHERE name LIKE 'verify.block:%') < $3",
    ),
    [alarmName(block.height), `${difference}: ${remedy}`, MAX_ALARMS],
  );
}

/** The indexed block at or below a height, and how it is inconsistent; null when there is no such block. */
async function sampleBlock(
  { pool, clickhouse, clock, signal }: Sampler,
  height: number,
  kafka: Options['kafka'] | null,
): Promise<{ block: SampledBlock; difference: string | null } | null> {
  const deps = { clickhouse, clock, served: await servedBuilds(pool) };
  const block = await blockAtOrBelow(deps, height);
  if (block === null) return null;
  return { block, difference: await differenceInBlock(deps, block, kafka, signal) };
}

/** Admins see the samples of all processes together. */
async function recordSample(pool: Pool, height: number, isDifferent: boolean): Promise<void> {
  await pool.query(
    `INSERT INTO tds.verify_samples AS s (blocks, differences, last_height, last_difference_height, last_difference_at)
     VALUES (1, $2, $1, $3, CASE WHEN $3::bigint IS NOT NULL THEN now() END)
     ON CONFLICT (singleton) DO UPDATE SET blocks = s.blocks + 1, differences = s.differences + excluded.differences,
       last_height = excluded.last_height, last_at = now(),
       last_difference_height = coalesce(excluded.last_difference_height, s.last_difference_height),
       last_difference_at = coalesce(excluded.last_difference_at, s.last_difference_at)`,
    [height, isDifferent ? 1 : 0, isDifferent ? height : null],
  );
}

async function clearAlarm(pool: Pool, height: number): Promise<void> {
  await pool.query('DELETE FROM tds.alarms WHERE name = $1', [alarmName(height)]);
}
