import { z } from 'zod';

import type { Clock } from '../../../infra/clock.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { Counter } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { servedBuilds } from '../../served.ts';
import { blockAtOrBelow, differenceInBlock, lowestIndexed } from './sample.ts';
import type { SampledBlock } from './sample.ts';

export interface Sampling {
  stop(): Promise<void>;
}

interface Options {
  readonly pool: Pool;
  readonly clickhouse: Pick<ClickHouse, 'rows'>;
  readonly kafka: Pick<Kafka, 'readRange'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly everyMs?: number;
}

/** A block takes some 11 ms of this process and 37 ms of the embedded ClickHouse: 0.6 % of a core, for two a round. */
const EVERY_MS = 15_000;
/** Reading one message takes a consumer of its own, which is most of the cost: one round in so many does it. */
const ROUNDS_PER_LOG = 6;
/** Blocks this near to the newest one may still be written, or reverted. */
const UNSETTLED = 16;
/** A difference is believed when it is there still, of the same block, after so long. */
const AGAIN_MS = 3000;
const MAX_ALARMS = 20;
const HIGHEST = 0xffff_fffe;

const alarmName = (height: number): string => `verify.block:${height}`;
const alarmRow = z.object({ name: z.string() });

/**
 * The light form of `tds verify`, at all times: one block of anywhere and one of the newest, compared by a few reads by
 * key. What differs raises an alarm that names it, and stays raised until that block is right again.
 */
export function startSampling(options: Options): Sampling {
  const { pool, clickhouse, clock, log, metrics, everyMs = EVERY_MS } = options;
  const registers = [metrics];
  const blocks = new Counter({
    name: 'tds_verify_blocks_total',
    help: 'Blocks checked by sampling',
    registers,
  });
  const differences = new Counter({
    name: 'tds_verify_differences_total',
    help: 'Blocks found inconsistent by sampling',
    registers,
  });
  const stopping = new AbortController();
  const { signal } = stopping;
  let round = 0;
  /** It never rises, and hardly ever falls. */
  let lowest: number | null = null;

  const clear = async (height: number): Promise<void> => {
    await pool.query('DELETE FROM tds.alarms WHERE name = $1', [alarmName(height)]);
  };

  const check = async (height: number, kafka: Options['kafka'] | null): Promise<void> => {
    let sampled: SampledBlock | null = null;
    let told: string | null = null;
    for (let looks = 0; looks < 2; looks += 1) {
      const deps = { clickhouse, served: await servedBuilds(pool) };
      const block = await blockAtOrBelow(deps, height);
      // Another block, or the same one repaired: what was seen was on its way.
      if (block === null || (sampled !== null && block.seq !== sampled.seq)) return;
      sampled = block;
      told = await differenceInBlock(deps, block, kafka);
      if (told === null) break;
      await clock.sleep(AGAIN_MS, signal);
      if (signal.aborted) return;
    }
    if (sampled === null) return;
    blocks.inc();
    // Of a height that is not indexed (any more) nothing is served that could be wrong.
    if (sampled.height !== height) await clear(height);
    if (told === null) return await clear(sampled.height);
    differences.inc();
    log.error({ block: sampled.height, difference: told }, 'sampled block is inconsistent');
    await pool.query(
      `INSERT INTO tds.alarms (name, detail)
       SELECT $1, $2 WHERE (SELECT count(*) FROM tds.alarms WHERE name LIKE 'verify.block:%') < $3
       ON CONFLICT (name) DO UPDATE SET detail = excluded.detail WHERE tds.alarms.detail <> excluded.detail`,
      [
        alarmName(sampled.height),
        `${told}: \`tds verify --from ${sampled.height} --to ${sampled.height} --repair\``,
        MAX_ALARMS,
      ],
    );
  };

  /** Heights to look at: what is alarmed, one of the newest, one of anywhere below. */
  const choose = async (): Promise<number[]> => {
    const alarmed = await sqlRows(
      pool,
      alarmRow,
      "SELECT name FROM tds.alarms WHERE name LIKE 'verify.block:%' ORDER BY random() LIMIT 1",
    );
    const deps = { clickhouse, served: await servedBuilds(pool) };
    const newest = await blockAtOrBelow(deps, HIGHEST);
    if (round % 100 === 1) lowest = null;
    lowest ??= await lowestIndexed(deps);
    if (newest === null || lowest === null) return [];
    const anywhere = lowest + Math.floor(clock.random() * (newest.height - lowest + 1));
    const recent = newest.height - UNSETTLED - Math.floor(clock.random() * UNSETTLED);
    return [
      ...alarmed.map(({ name }) => Number(name.split(':')[1])),
      Math.max(lowest, Math.min(anywhere, newest.height - UNSETTLED)),
      Math.max(lowest, recent),
    ];
  };

  const run = async (): Promise<void> => {
    while (!signal.aborted) {
      await clock.sleep(everyMs * (0.5 + clock.random()), signal);
      if (signal.aborted) return;
      try {
        round += 1;
        const kafka = round % ROUNDS_PER_LOG === 0 ? options.kafka : null;
        for (const height of await choose()) if (!signal.aborted) await check(height, kafka);
      } catch (error) {
        // An unavailable store raises an alarm elsewhere.
        log.debug({ err: error }, 'could not sample blocks');
      }
    }
  };
  const running = run();
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };
}
