import { setImmediate as turn } from 'node:timers/promises';

import { NEW_ACCOUNTS, NOBODY, sequencerAt } from './actors.ts';
import type { ForkTree } from './forks.ts';
import { item } from './hash.ts';
import { FEE_UNITS, GRANT_UNITS } from './schedule.ts';
import type { Schedule } from './schedule.ts';
import { ETH } from './tokens.ts';

/** Fees and grants are summed once for this many heights; one sum takes some milliseconds. */
const SPAN = 512;

/** Sums by `token × 2^40 + holder`. */
type Sums = Map<number, bigint>;
const MINTED = 2 ** 40 - 1;
const keyOf = (token: number, holder: number) => token * 2 ** 40 + (holder === NOBODY ? MINTED : holder);

export type Flows = {
  /** Fees, deposits and fundings of a holder up to a height, received less paid; of NOBODY: less what was minted. */
  sum(forkId: number, height: number, token: number, holder: number): bigint;
  /** Computes the sums below a height in advance, yielding to other work: about a second for 43,200 blocks (a day). */
  warm: (forkId: number, height: number, signal: AbortSignal) => Promise<void>;
};

/** What fees and grants move beside the notes, from cached sums of 512 heights each. */
export function createFlows(schedule: Schedule, tree: ForkTree): Flows {
  const spans = new Map<string, Sums>();
  let tail = { key: '', height: -1, sums: new Map<number, bigint>() };

  /** All sums of the spans below `span`, computed oldest first to avoid a recursion over the whole chain. */
  function sumsBelow(forkId: number, span: number): Sums {
    const name = (end: number) => `${tree.governing(forkId, end * SPAN - 1)}:${end}`;
    let done = span;
    while (done > 0 && !spans.has(name(done))) done--;
    let sums: Sums = done === 0 ? new Map() : (spans.get(name(done)) ?? new Map());
    for (; done < span; done++) {
      sums = new Map(sums);
      for (let height = done * SPAN; height < (done + 1) * SPAN; height++)
        addBlock(schedule, sums, { forkId, height });
      spans.set(name(done + 1), sums);
    }
    return sums;
  }

  /** The sums of the last, incomplete span up to a height; continues from the previous result. */
  function sumsOfTail(forkId: number, height: number): Sums {
    const start = Math.floor((height + 1) / SPAN) * SPAN;
    const key = `${start}:${tree.governing(forkId, Math.max(tail.height, 0))}`;
    if (tail.key !== key || tail.height > height) tail = { key: '', height: start - 1, sums: new Map() };
    for (let at = tail.height + 1; at <= height; at++) addBlock(schedule, tail.sums, { forkId, height: at });
    tail = { key: `${start}:${tree.governing(forkId, height)}`, height, sums: tail.sums };
    return tail.sums;
  }

  function sum(forkId: number, height: number, token: number, holder: number): bigint {
    const key = keyOf(token, holder);
    if (holder >= NEW_ACCOUNTS) {
      const sums: Sums = new Map();
      const origin = Math.floor((holder - NEW_ACCOUNTS) / schedule.slots);
      for (const at of [origin, origin + 1])
        if (at <= height) addBlock(schedule, sums, { forkId, height: at, only: holder });
      return sums.get(key) ?? 0n;
    }
    const below = sumsBelow(forkId, Math.floor((height + 1) / SPAN)).get(key) ?? 0n;
    return below + (sumsOfTail(forkId, height).get(key) ?? 0n);
  }

  async function warm(forkId: number, height: number, signal: AbortSignal): Promise<void> {
    for (let span = 1; span <= Math.floor((height + 1) / SPAN) && !signal.aborted; span++) {
      sumsBelow(forkId, span);
      await turn();
    }
  }

  return { sum, warm };
}

function addBlock(
  schedule: Schedule,
  sums: Sums,
  { forkId, height, only }: { forkId: number; height: number; only?: number },
): void {
  const add = (token: number, holder: number, amount: bigint) => {
    // A deployed account is in no sum: only two blocks can contain its transactions.
    if (only === undefined ? holder >= NEW_ACCOUNTS : holder !== only) return;
    const key = keyOf(token, holder);
    sums.set(key, (sums.get(key) ?? 0n) + amount);
  };
  for (const plan of schedule.planBlock(forkId, height)) {
    if (plan.fee > 0) {
      const fee = BigInt(plan.fee) * item(FEE_UNITS, plan.feeToken === ETH ? 1 : 0);
      add(plan.feeToken, plan.sender, -fee);
      add(plan.feeToken, sequencerAt(height), fee);
    }
    if (plan.grant !== null) {
      const amount = BigInt(plan.grant.units) * (GRANT_UNITS.get(plan.grant.token) ?? 1n);
      add(plan.grant.token, plan.sender, -amount);
      add(plan.grant.token, plan.grant.to, amount);
    }
  }
}
