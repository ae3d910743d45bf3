import { AppError } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { Chunk, RecordedHeader } from '../ports.ts';
import type { LoggedVersion } from './versions.ts';

export interface Findings {
  /** Blocks of the log above the recorded ones, in one chain on top of them: to be recorded, lowest first. */
  readonly adopt: readonly LoggedVersion[];
  /** Blocks of the log that no record explains: to be reverted. */
  readonly revert: readonly LoggedVersion[];
  /** The log contradicts the records above this height, so they are to be reverted and indexed again; null: nowhere. */
  readonly fork: number | null;
}

/**
 * Compares the log with the recorded blocks of the live chunk. They differ when PostgreSQL has lost transactions.
 *
 * @param recorded keys of the recorded versions
 * @param versions the newest part of the log, lowest first
 * @throws `RECORDS_INCOMPLETE` if a height is missing in the records and in this part of the log
 */
export function compareWithLog({
  chunk,
  headers,
  recorded,
  versions,
}: {
  readonly chunk: Chunk;
  readonly headers: readonly RecordedHeader[];
  readonly recorded: ReadonlySet<string>;
  readonly versions: readonly LoggedVersion[];
}): Findings {
  const { cursor, plan, finalHeight } = chunk;
  const top = headers.at(-1)?.height ?? finalHeight;
  const open = versions.filter(({ height }) => height > finalHeight);
  const byHeight = Map.groupBy(open, ({ height }) => height);
  const accepted = open.filter(({ isAccepted }) => isAccepted);
  /** Final blocks whose publish was planned have no record; they are published again with the planned facts. */
  const isPlanned = ({ height }: LoggedVersion): boolean =>
    height > top && height >= cursor && height <= plan.to;
  const unknown = accepted.filter((version) => !recorded.has(version.key) && !isPlanned(version));

  const missing = missingHeights(chunk, headers);
  const unexplained = missing.filter((height) => !byHeight.has(height));
  if (unexplained.length > 0) throw recordsIncomplete(chunk, unexplained);
  const removed = headers
    .filter(({ height, intent }) => height < cursor && intent === 'accept')
    .map(({ height }) => ({
      height,
      own: byHeight.get(height)?.filter(({ key }) => recorded.has(key)) ?? [],
    }))
    .filter(({ own }) => own.length > 0 && !own.some(({ isAccepted }) => isAccepted));

  const replaced = unknown.filter(({ height }) => height <= top);
  const contradicted = [...missing, ...[...removed, ...replaced].map(({ height }) => height)];
  if (contradicted.length > 0)
    return { adopt: [], revert: unknown, fork: contradicted.reduce((a, b) => Math.min(a, b)) - 1 };
  const above = accepted.filter(({ height }) => height > top);
  const tip = headers.at(-1)?.hash ?? chunk.finalHash;
  return unknown.length > 0 && isChain(above, top, tip)
    ? { adopt: above, revert: [], fork: null }
    : { adopt: [], revert: unknown, fork: null };
}

/** The blocks that continue one chain from the height above `top`, whose hash is `tip` (null: not known). */
export function chainAbove(
  versions: readonly LoggedVersion[],
  top: number,
  tip: Felt | null,
): LoggedVersion[] {
  const byHeight = Map.groupBy(versions, ({ height }) => height);
  const chain: LoggedVersion[] = [];
  let parent = tip;
  for (let height = top + 1; ; height += 1) {
    const [only, ...others] = byHeight.get(height) ?? [];
    if (only === undefined || others.length > 0) return chain;
    if (parent !== null && only.parentHash !== parent) return chain;
    chain.push(only);
    parent = only.hash;
  }
}

function isChain(versions: readonly LoggedVersion[], top: number, tip: Felt | null): boolean {
  return chainAbove(versions, top, tip).length === versions.length;
}

/** Heights between the final block and the highest indexed one that have no record. */
function missingHeights({ finalHeight, cursor }: Chunk, headers: readonly RecordedHeader[]): number[] {
  const heights = new Set(headers.map(({ height }) => height));
  const top = Math.max(headers.at(-1)?.height ?? finalHeight, cursor - 1);
  const missing: number[] = [];
  for (let height = finalHeight + 1; height <= top; height += 1) {
    if (!heights.has(height)) missing.push(height);
  }
  return missing;
}

function recordsIncomplete({ name, updatedAt }: Chunk, heights: readonly number[]): AppError {
  const [first, last] = [heights[0], heights.at(-1)];
  const which = first === last ? `height ${first}` : `${heights.length} heights from ${first} to ${last}`;
  return new AppError(
    'RECORDS_INCOMPLETE',
    `chunk ${name} has no recorded block at ${which}, and the log since ${new Date(updatedAt).toISOString()} has none either: see "PostgreSQL fail-over" in docs/operations.md`,
    { details: { heights: heights.slice(0, 100) } },
  );
}
