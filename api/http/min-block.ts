import { z } from 'zod';

import { sleep } from '../../infra/lifecycle.ts';
import { MAX_HEIGHT } from '../../projections/transfers/queries.ts';
import { behind } from './errors.ts';
import { integer } from './params.ts';
import type { RequestInfo } from './route.ts';
import { parseInput } from './validation.ts';

/** How long a request may wait for the height of `X-Min-Block`, in all. */
export const WAIT_MS = 2000;

/** The header by which a client asks for an answer that is not older than a block that it knows of. */
export const minBlockHeader = z.object({
  'X-Min-Block': integer({
    min: 0,
    max: MAX_HEIGHT,
    description: `Answer once this height is indexed; 503 with code \`behind\` if it is not within ${WAIT_MS / 1000} s`,
  }).optional(),
});

/** The height of the header; null without it or if it is empty. Throws 400 if it is invalid. */
export function minBlockOf(sent: string): number | null {
  return parseInput(minBlockHeader, sent === '' ? {} : { 'X-Min-Block': sent })['X-Min-Block'] ?? null;
}

/** Whether the index reaches a height in time. */
export type ReachesHeight = (height: number, ms: number, signal: AbortSignal) => Promise<boolean>;

/** Waits until the index has reached the height. Throws 503 if it does not in time, or if the client leaves. */
export async function waitForBlock(
  reaches: ReachesHeight,
  height: number,
  { signal, waitEndsAt }: Pick<RequestInfo, 'signal' | 'waitEndsAt'>,
): Promise<void> {
  const leftMs = Math.max(0, waitEndsAt - performance.now());
  if (!(await reaches(height, leftMs, signal))) throw behind(`Block ${height} is not indexed yet.`);
}

/**
 * Reads what is derived after a block is indexed, until it covers the height of `X-Min-Block`.
 *
 * @param upTo the height that it covers; null: none
 * @throws 503 if it does not in time, or if the client leaves
 */
export async function readCovering<T>(
  read: () => Promise<T>,
  upTo: (found: T) => number | null,
  {
    request,
    everyMs,
  }: {
    readonly request: Pick<RequestInfo, 'minBlock' | 'signal' | 'waitEndsAt'>;
    readonly everyMs: number;
  },
): Promise<T> {
  const wanted = request.minBlock() ?? -1;
  for (;;) {
    const found = await read();
    if ((upTo(found) ?? -1) >= wanted) return found;
    const leftMs = request.waitEndsAt - performance.now();
    if (leftMs <= 0 || request.signal.aborted)
      throw behind(`Block ${wanted} is indexed, but the answer does not cover it yet.`);
    await sleep(Math.min(everyMs, leftMs), request.signal);
  }
}
