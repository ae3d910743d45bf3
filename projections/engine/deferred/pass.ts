import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { partitionOfHeight } from '../../../schemas/topics.ts';
import { withNames } from '../../define.ts';
import type { DeferredPlan, DeferredProjection } from '../../define.ts';
import { doneRows, dueBlocks, offsetOfMark } from '../../due-blocks.ts';
import { newestBlock } from '../../indexed-blocks/queries.ts';

export interface PassPorts {
  readonly clickhouse: Pick<ClickHouse, 'rows' | 'command' | 'insert'>;
  readonly log: Logger;
  /** Real names by placeholder: of the build that is derived, and of the builds of its sources. */
  readonly names: Readonly<Record<string, string>>;
  /** The offset up to which every source has read a partition (exclusive). */
  readonly readUpTo: (partition: number) => number;
  /** Begins a pass: a number above those of all earlier passes of any process. */
  readonly number: () => Promise<number>;
  /** Whether no later pass has begun, in any process. */
  readonly isNewest: (pass: number) => Promise<boolean>;
}

export interface PassResult {
  /** Blocks that were derived. 0: there was nothing to derive yet. */
  readonly derived: number;
  /** Due blocks that could have been derived and were left to the next pass. */
  readonly left: number;
  /** Due blocks whose sources have not read them. */
  readonly waiting: number;
  /** Blocks keep being marked, as in a backfill. */
  readonly isBusy: boolean;
}

interface Planned extends Omit<PassResult, 'derived'> {
  /** null: there is nothing to derive yet. */
  readonly plan: DeferredPlan | null;
  readonly pass: number;
}

/** More marks than this in so many seconds are those of a backfill. */
const BUSY_MARKS = 100;
const BUSY_SECONDS = 10;
/** Marks that one pass looks at. */
const MARKS = 50_000;
/** Beside the batches and the reads of the API. */
const settings = {
  max_threads: 1,
  max_memory_usage: 2_000_000_000,
  max_bytes_before_external_group_by: 800_000_000,
  // What a statement inserts appears at once: it is one part of the table.
  min_insert_block_size_rows: 5_000_000,
  min_insert_block_size_bytes: 1_000_000_000,
} as const;

/**
 * What the next pass would derive. The number of the pass is drawn after the marks were read and before anything else is: rows
 * of a higher number have seen all that the marks of a lower one stand for.
 */
export async function planPass({ deferred }: DeferredProjection, ports: PassPorts): Promise<Planned> {
  const { clickhouse, names, readUpTo, number } = ports;
  const table = (placeholder: string): string => withNames(`{{${placeholder}}}`, names);
  const newestTime = async (): Promise<number | null> =>
    (await newestBlock(clickhouse, { table }))?.timestamp ?? null;
  const marks = await dueBlocks(clickhouse, table(deferred.due), MARKS);
  const ready = marks.filter((mark) => offsetOfMark(mark) < readUpTo(partitionOfHeight(mark.height)));
  const pass = ready.length === 0 ? 0 : await number();
  const plan = ready.length === 0 ? null : await deferred.plan(ready, { clickhouse, table, newestTime });
  return {
    plan,
    pass,
    left: plan === null ? 0 : ready.length - plan.blocks.length,
    waiting: marks.length - ready.length,
    isBusy: marks.filter(({ age }) => age < BUSY_SECONDS).length > BUSY_MARKS,
  };
}

/**
 * Derives some of the due blocks, the newest first, then clears their marks. A pass that is interrupted, or runs beside another,
 * does no harm: blocks that it has not finished are still due, and a pass with a higher number derives them again. A pass that a
 * later one overtakes ends after its current statement and clears no marks: the later one has read the rows before that statement
 * wrote, so its sums may lack them. For the same reason no statement is retried within a pass.
 */
export async function runPass(projection: DeferredProjection, ports: PassPorts): Promise<PassResult> {
  const { clickhouse, log, names } = ports;
  const { deferred, name, tables } = projection;
  const began = performance.now();
  const { plan, pass, ...planned } = await planPass(projection, ports);
  if (plan === null) return { derived: 0, ...planned };
  for (const { sql, params } of plan.statements(pass)) {
    await clickhouse.command(withNames(sql, names), { params, settings });
    if (await ports.isNewest(pass)) continue;
    log.info({ projection: name, pass }, 'overtaken by a later pass; blocks stay due');
    return { derived: 0, ...planned };
  }
  const columns = tables[deferred.due]?.columns ?? [];
  await clickhouse.insert(withNames(`{{${deferred.due}}}`, names), columns, doneRows(plan.blocks));
  const ms = Math.round(performance.now() - began);
  log.debug({ projection: name, blocks: plan.blocks.length, ms }, 'due blocks derived');
  return { derived: plan.blocks.length, ...planned };
}
