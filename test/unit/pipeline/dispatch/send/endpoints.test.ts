import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { createEndpoints } from '../../../../../pipeline/dispatch/send/endpoints.ts';
import type { Endpoints } from '../../../../../pipeline/dispatch/send/endpoints.ts';

const MOST = 8;
const SLOW = 4;
const options = { most: MOST, slow: SLOW };

/** What one endpoint may be given now, if no other has anything due. */
function given(endpoints: Endpoints, webhookId: number): number {
  return endpoints
    .rooms()
    .reduce((sum, { room, otherwise, most }) => sum + Math.min(room.get(webhookId) ?? otherwise, most), 0);
}
/** Attempts that begin when all of these have a lot due, in the order in which they waited: the endpoint of each. */
function fill(endpoints: Endpoints, due: readonly number[], places = Number.POSITIVE_INFINITY): number[] {
  const begun: number[] = [];
  for (const { room, otherwise, most } of endpoints.rooms()) {
    let left = Math.min(most, places - begun.length);
    for (const webhookId of due) {
      const count = Math.min(room.get(webhookId) ?? otherwise, left);
      left -= count;
      for (let i = 0; i < count; i += 1) begun.push(webhookId);
    }
  }
  for (const webhookId of begun) endpoints.began(webhookId);
  return begun;
}
function make(endpoints: Endpoints, webhookId: number, isQuick: boolean): void {
  endpoints.began(webhookId);
  endpoints.ended(webhookId, isQuick);
}
const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);

describe('what an endpoint is given', () => {
  it('is one attempt at first, twice as many after each quick answer, up to a bound', () => {
    const endpoints = createEndpoints(options);
    const seen = [given(endpoints, 1)];
    for (let i = 0; i < 5; i += 1) {
      make(endpoints, 1, true);
      seen.push(given(endpoints, 1));
    }
    expect(seen).toEqual([1, 2, 4, 8, 8, 8]);
  });

  it('is half as many after each slow one, and never less than one', () => {
    const endpoints = createEndpoints({ most: 32, slow: 100 });
    for (let i = 0; i < 5; i += 1) make(endpoints, 1, true);
    const seen = range(0, 7).map(() => {
      make(endpoints, 1, false);
      return given(endpoints, 1);
    });
    expect(seen).toEqual([16, 8, 4, 2, 1, 1, 1]);
  });

  it('is less what is under way', () => {
    const endpoints = createEndpoints(options);
    endpoints.began(1);
    expect(given(endpoints, 1)).toBe(0);
    endpoints.ended(1, true);
    endpoints.began(1);
    expect(given(endpoints, 1)).toBe(1);
  });
});

describe('slow endpoints', () => {
  it('share a part of the places, and the others have theirs all the same', () => {
    const endpoints = createEndpoints(options);
    for (const webhookId of range(1, 50)) make(endpoints, webhookId, false);
    expect(fill(endpoints, range(1, 100))).toEqual([...range(1, SLOW), ...range(51, 50)]);
    expect(fill(endpoints, range(1, 50))).toEqual([]);
  });

  it('keep nothing from one another that they do not use', () => {
    const endpoints = createEndpoints(options);
    // Slow once, and with nothing to do since.
    for (const webhookId of range(1, 50)) make(endpoints, webhookId, false);
    make(endpoints, 51, false);
    expect(fill(endpoints, [51])).toEqual([51]);
  });

  it('have their share even while others could take all places', () => {
    const endpoints = createEndpoints(options);
    make(endpoints, 1, false);
    const quick = range(2, 20);
    expect(fill(endpoints, [...quick, 1], 10)).toContain(1);
  });

  it('are like the others again after one quick answer', () => {
    const endpoints = createEndpoints(options);
    for (const webhookId of range(1, 5)) make(endpoints, webhookId, false);
    make(endpoints, 5, true);
    expect(fill(endpoints, [1, 2, 3, 4, 5])).toContain(5);
  });
});

it('never gives an endpoint more than its bound, nor slow ones more than their share, and none is passed over for ever', () => {
  const steps = fc.array(
    fc.record({ due: fc.uniqueArray(fc.nat(11), { minLength: 1 }), isQuick: fc.boolean(), end: fc.nat() }),
    { maxLength: 60 },
  );
  fc.assert(
    fc.property(steps, (all) => {
      const endpoints = createEndpoints(options);
      const running: number[] = [];
      const slow = new Set<number>();
      const runningOf = (webhookId: number): number => running.filter((one) => one === webhookId).length;
      for (const { due, isQuick, end } of all) {
        const slowBefore = running.filter((one) => slow.has(one)).length;
        const begun = fill(endpoints, due);
        running.push(...begun);
        for (const webhookId of due) expect(runningOf(webhookId)).toBeLessThanOrEqual(MOST);
        const slowBegun = begun.filter((one) => slow.has(one)).length;
        expect(slowBegun).toBeLessThanOrEqual(Math.max(0, SLOW - slowBefore));
        // One that is not slow and has nothing under way is given something at once.
        for (const webhookId of due)
          if (!slow.has(webhookId)) expect(runningOf(webhookId)).toBeGreaterThan(0);
        const [ended] = running.splice(end % running.length, 1);
        if (ended === undefined) continue;
        endpoints.ended(ended, isQuick);
        if (isQuick) slow.delete(ended);
        else slow.add(ended);
      }
      // Whatever was before, once nothing runs each is given something.
      for (const webhookId of running) endpoints.ended(webhookId, false);
      for (const webhookId of range(0, 12)) expect(given(endpoints, webhookId)).toBeGreaterThan(0);
    }),
  );
});

it('forgets the endpoints that were idle longest, and none that has an attempt under way', () => {
  const endpoints = createEndpoints(options);
  make(endpoints, 1, true);
  endpoints.began(2);
  for (const webhookId of range(3, 10_000)) make(endpoints, webhookId, true);
  expect([given(endpoints, 1), given(endpoints, 2), given(endpoints, 10_002)]).toEqual([1, 0, 2]);
});
