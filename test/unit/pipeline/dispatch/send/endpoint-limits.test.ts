import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { createEndpointLimits } from '../../../../../pipeline/dispatch/send/endpoint-limits.ts';
import type { EndpointLimits } from '../../../../../pipeline/dispatch/send/endpoint-limits.ts';

const MAX = 8;
const MAX_SLOW = 4;
const MAX_SLOW_AND_FURTHER = 12;
const CONCURRENCY = 16;
const options = { maxPerEndpoint: MAX, maxSlow: MAX_SLOW, maxSlowAndFurther: MAX_SLOW_AND_FURTHER };

/** Starts all attempts that may be claimed when each of these endpoints has many due, longest waiting first; their endpoints. */
function fill(endpoints: EndpointLimits, due: readonly number[], limit = Number.POSITIVE_INFINITY): number[] {
  const started: number[] = [];
  for (const { perEndpoint, perOtherEndpoint, limit: share } of endpoints.capacities()) {
    let left = Math.min(share, limit - started.length);
    for (const webhookId of due) {
      const count = Math.min(perEndpoint.get(webhookId) ?? perOtherEndpoint, left);
      left -= count;
      for (let i = 0; i < count; i += 1) {
        started.push(webhookId);
        endpoints.attemptStarted(webhookId);
      }
    }
  }
  return started;
}
function attempt(endpoints: EndpointLimits, webhookId: number, isFast: boolean): void {
  endpoints.attemptStarted(webhookId);
  endpoints.attemptEnded(webhookId, isFast);
}
const range = (from: number, count: number): number[] => Array.from({ length: count }, (_, i) => from + i);

describe('the limit of an endpoint', () => {
  it('starts at one attempt and doubles after each fast answer, up to the maximum', () => {
    const seen = range(0, 6).map((answers) => {
      const endpoints = createEndpointLimits(options);
      for (let i = 0; i < answers; i += 1) attempt(endpoints, 1, true);
      return fill(endpoints, [1]).length;
    });
    expect(seen).toEqual([1, 2, 4, 8, 8, 8]);
  });

  it('halves after each slow answer, down to one', () => {
    const seen = range(1, 7).map((answers) => {
      const endpoints = createEndpointLimits({ maxPerEndpoint: 32, maxSlow: 100, maxSlowAndFurther: 100 });
      for (let i = 0; i < 5; i += 1) attempt(endpoints, 1, true);
      for (let i = 0; i < answers; i += 1) attempt(endpoints, 1, false);
      return fill(endpoints, [1]).length;
    });
    expect(seen).toEqual([16, 8, 4, 2, 1, 1, 1]);
  });

  it('includes running attempts', () => {
    const endpoints = createEndpointLimits(options);
    endpoints.attemptStarted(1);
    expect(fill(endpoints, [1])).toEqual([]);
    endpoints.attemptEnded(1, true);
    endpoints.attemptStarted(1);
    expect(fill(endpoints, [1])).toEqual([1]);
  });
});

describe('slow endpoints', () => {
  it('share a limit of their own, beside that of the others', () => {
    const endpoints = createEndpointLimits(options);
    for (const webhookId of range(1, 50)) attempt(endpoints, webhookId, false);
    expect(fill(endpoints, range(1, 100))).toEqual([...range(1, MAX_SLOW), ...range(51, 50)]);
    expect(fill(endpoints, range(1, 50))).toEqual([]);
  });

  it('reserve nothing while they have no running attempt', () => {
    const endpoints = createEndpointLimits(options);
    // Slow once, and idle since.
    for (const webhookId of range(1, 50)) attempt(endpoints, webhookId, false);
    attempt(endpoints, 51, false);
    expect(fill(endpoints, [51])).toEqual([51]);
  });

  it('keep their share while others could use all of the capacity', () => {
    const endpoints = createEndpointLimits(options);
    attempt(endpoints, 1, false);
    const fast = range(2, 20);
    expect(fill(endpoints, [...fast, 1], 10)).toContain(1);
  });

  it('have nothing left of their share once further attempts of others use it up', () => {
    const endpoints = createEndpointLimits(options);
    attempt(endpoints, 1, false);
    for (const webhookId of [2, 3]) for (let i = 0; i < 3; i += 1) attempt(endpoints, webhookId, true);
    expect(fill(endpoints, [2, 3])).toHaveLength(2 + MAX_SLOW_AND_FURTHER);
    expect(fill(endpoints, [1])).toEqual([]);
    endpoints.attemptEnded(2, true);
    expect(fill(endpoints, [1])).toEqual([1]);
  });

  it('count as fast again after one fast answer', () => {
    const endpoints = createEndpointLimits(options);
    for (const webhookId of range(1, 5)) attempt(endpoints, webhookId, false);
    attempt(endpoints, 5, true);
    expect(fill(endpoints, [1, 2, 3, 4, 5])).toContain(5);
  });
});

describe('endpoints that answer quickly and then hang', () => {
  const hanging = range(1, CONCURRENCY - MAX_SLOW_AND_FURTHER - 1);

  it('leave an attempt for every other endpoint', () => {
    const steps = fc.array(
      fc.record({
        due: fc.subarray(hanging, { minLength: 1 }),
        ends: fc.array(fc.record({ end: fc.nat(), isFast: fc.boolean() }), { maxLength: CONCURRENCY }),
      }),
      { minLength: 1, maxLength: 20 },
    );
    fc.assert(
      fc.property(steps, (all) => {
        const endpoints = createEndpointLimits(options);
        const running: number[] = [];
        for (const [step, { due, ends }] of all.entries()) {
          running.push(...fill(endpoints, due, CONCURRENCY - running.length));
          const other = 100 + step;
          expect(fill(endpoints, [other], CONCURRENCY - running.length)).toEqual([other]);
          endpoints.attemptEnded(other, true);
          for (const { end, isFast } of ends) {
            const [ended] = running.splice(end % running.length, 1);
            if (ended !== undefined) endpoints.attemptEnded(ended, isFast);
          }
        }
      }),
    );
  });

  it('have further attempts only after the first of the others', () => {
    const endpoints = createEndpointLimits(options);
    for (const webhookId of [...hanging, ...hanging, ...hanging]) attempt(endpoints, webhookId, true);
    const started = fill(endpoints, [...hanging, 11, 12]);
    expect(started.slice(0, 5)).toEqual([...hanging, 11, 12]);
    expect(started).toHaveLength(5 + MAX_SLOW_AND_FURTHER);
  });
});

it('never exceeds the limit of an endpoint or a share, and starves none', () => {
  const steps = fc.array(
    fc.record({ due: fc.uniqueArray(fc.nat(11), { minLength: 1 }), isFast: fc.boolean(), end: fc.nat() }),
    { maxLength: 60 },
  );
  fc.assert(
    fc.property(steps, (all) => {
      const endpoints = createEndpointLimits(options);
      const running: number[] = [];
      const slow = new Set<number>();
      const runningOf = (webhookId: number): number => running.filter((one) => one === webhookId).length;
      for (const { due, isFast, end } of all) {
        const slowBefore = running.filter((one) => slow.has(one)).length;
        const started = fill(endpoints, due);
        running.push(...started);
        for (const webhookId of due) expect(runningOf(webhookId)).toBeLessThanOrEqual(MAX);
        const slowStarted = started.filter((one) => slow.has(one)).length;
        expect(slowStarted).toBeLessThanOrEqual(Math.max(0, MAX_SLOW - slowBefore));
        const first = new Set(running.filter((one) => !slow.has(one))).size;
        expect(running.length - first).toBeLessThanOrEqual(MAX_SLOW_AND_FURTHER);
        // A fast endpoint without a running attempt always has capacity.
        for (const webhookId of due)
          if (!slow.has(webhookId)) expect(runningOf(webhookId)).toBeGreaterThan(0);
        const [ended] = running.splice(end % running.length, 1);
        if (ended === undefined) continue;
        endpoints.attemptEnded(ended, isFast);
        if (isFast) slow.delete(ended);
        else slow.add(ended);
      }
      // Once nothing runs, every endpoint has capacity.
      for (const webhookId of running) endpoints.attemptEnded(webhookId, false);
      for (const webhookId of range(0, 12)) {
        const started = fill(endpoints, [webhookId]);
        expect(started).not.toEqual([]);
        for (const one of started) endpoints.attemptEnded(one, false);
      }
    }),
  );
});

it('evicts the endpoints that were idle longest, and none with a running attempt', () => {
  const endpoints = createEndpointLimits(options);
  attempt(endpoints, 1, true);
  endpoints.attemptStarted(2);
  for (const webhookId of range(3, 10_000)) attempt(endpoints, webhookId, true);
  expect([1, 2, 10_002].map((webhookId) => fill(endpoints, [webhookId]).length)).toEqual([1, 0, 2]);
});
