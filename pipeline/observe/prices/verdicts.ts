import type { Felt } from '../../../schemas/felt.ts';
import type { FeedReading } from './feed.ts';
import { judge } from './guard.ts';
import type { GuardLimits, Refusal, Verdict } from './guard.ts';
import type { Claim, Settled } from './store.ts';

/** The least pause before a jump is looked at again: a feed does not make a new price more often. */
const LEAST_PAUSE_MS = 30_000;

/**
 * What becomes of each token that was asked for. A token of which nothing was said is unknown to the feed, unless the feed
 * spoke of tokens that nobody asked for: then it spoke of another in its place.
 */
export function verdictsOf(
  claims: readonly Claim[],
  readings: readonly FeedReading[],
  limits: GuardLimits,
  pollMs: number,
  now: number,
): Settled[] {
  const asked = new Set<Felt | null>(claims.map(({ token }) => token));
  const strangers = readings.filter(({ token }) => !asked.has(token));
  const newest = new Map<Felt | null, FeedReading>();
  for (const reading of readings) {
    const before = newest.get(reading.token);
    // One token in two spellings: what is newer is righter.
    if ((before?.observedAt ?? -1) < (reading.observedAt ?? 0)) newest.set(reading.token, reading);
  }
  return claims.map((claim) => {
    const reading = newest.get(claim.token);
    const verdict: Verdict = reading === undefined ? absent(strangers) : judge(reading, claim, limits, now);
    const routine = claim.common ? now + pollMs : null;
    const again = verdict.kind === 'held' ? Math.max(verdict.readAgainAt, now + LEAST_PAUSE_MS) : null;
    return { claim, verdict, dueAt: earlier(routine, again) };
  });
}

/** Why nothing is published; null: it is, or nothing is new. */
export function reasonOf(verdict: Verdict): Refusal | null {
  if (verdict.kind === 'held') return 'jump';
  return verdict.kind === 'refused' ? verdict.reason : null;
}

function absent(strangers: readonly FeedReading[]): Verdict {
  const [stranger] = strangers;
  return stranger === undefined
    ? { kind: 'refused', reason: 'untracked', detail: 'the feed does not know it' }
    : {
        kind: 'refused',
        reason: 'other_address',
        detail: `the feed answered with ${stranger.token ?? 'no address'}, which was not asked for`,
      };
}

function earlier(one: number | null, other: number | null): number | null {
  if (one === null || other === null) return one ?? other;
  return Math.min(one, other);
}
