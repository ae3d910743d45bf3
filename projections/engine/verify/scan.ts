import { systemClock } from '../../../infra/clock.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { OffsetRange } from '../../../infra/kafka/client.ts';
import type { BlockItem, BlockProjection } from '../../define.ts';
import { chainBlocks, readItem } from '../../streams.ts';
import type { Heights } from '../compare.ts';
import { replayTargets } from '../rebuild/replay.ts';
import type { ReplayPorts } from '../rebuild/replay.ts';
import type { Poison } from '../run/pipeline.ts';
import type { Difference } from './difference.ts';
import { factColumns } from './facts.ts';
import type { Scratch } from './scratch.ts';

/** A part of one partition of the log. */
export interface LogRange extends OffsetRange {
  /** The projections have read every message before this offset: their rows are expected. */
  readonly projected: number;
}

interface Scan extends Pick<ReplayPorts, 'kafka' | 'log' | 'metrics' | 'signal'> {
  readonly clickhouse: ClickHouse;
  readonly scratch: Scratch;
  readonly heights: Heights;
  readonly ranges: readonly LogRange[];
  /** `partition:offset` of messages that an operator has skipped. */
  readonly skipped: ReadonlySet<string>;
  readonly onRead: (messages: number) => void;
}

/** Replays the messages about these heights into the scratch tables, and names those that cannot be replayed. */
export async function scanLog(scan: Scan): Promise<Difference[]> {
  const { scratch, heights, ranges, skipped } = scan;
  const isWithin = ({ message: { block } }: BlockItem): boolean =>
    block.height >= heights.from && block.height <= heights.to;
  const projected = new Map(ranges.map((range) => [range.partition, range.projected]));
  const isProjected = (item: BlockItem): boolean =>
    isWithin(item) && item.offset < (projected.get(item.partition) ?? 0);
  const targets = [
    { build: scratch.facts.build, projection: onlyRows(scratch.facts.projection, isWithin) },
    ...scratch.targets.map(({ build, projection }) => ({
      build,
      projection: onlyRows(projection, isProjected),
    })),
  ];

  // A replay waits for an unavailable store; a verification is inconclusive then.
  const failed = new AbortController();
  const clickhouse: ReplayPorts['clickhouse'] = {
    ...scan.clickhouse,
    async insertEncoded(table, columns, bytes) {
      await scan.clickhouse.insertEncoded(table, columns, bytes).catch((error: unknown) => {
        failed.abort(error);
        throw error;
      });
    },
  };
  const unreadable: Difference[] = [];
  const onPoison = async ({ message, reason }: Poison): Promise<void> => {
    const item = readItem(chainBlocks, message);
    // The block of a message that cannot be projected is in the log nevertheless.
    if (!('reason' in item) && isWithin(item)) {
      const { facts = [] } = scratch.facts.projection.project(item);
      await scan.clickhouse.insert(scratch.facts.table, factColumns, facts);
    }
    const place = `${message.partition}:${message.offset}`;
    if (skipped.has(place)) return;
    const what = `${chainBlocks.name}:${place}: ${reason}`;
    unreadable.push({ kind: 'log', what, heights: null });
  };

  await replayTargets(
    {
      ...scan,
      clickhouse,
      clock: systemClock,
      signal: AbortSignal.any([scan.signal, failed.signal]),
      state: {
        checkpoints: async () => new Map(ranges.map(({ partition, from }) => [partition, from])),
        move: async () => [],
      },
      onPoison,
    },
    targets,
    new Map(ranges.map(({ partition, to }) => [partition, to])),
    scan.onRead,
  );
  return unreadable;
}

/** The rows of some messages; derived tables are recomputed when they are compared. */
function onlyRows(projection: BlockProjection, isWanted: (item: BlockItem) => boolean): BlockProjection {
  return {
    ...projection,
    project: (item) => (isWanted(item) ? projection.project(item) : {}),
    derive: () => [],
  };
}
