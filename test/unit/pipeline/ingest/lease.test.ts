import fc from 'fast-check';
import { expect, test } from 'vitest';

import { pino } from 'pino';

import { sleep } from '../../../../infra/lifecycle.ts';
import { acquireLease, createSeq } from '../../../../pipeline/ingest/lease.ts';
import type { LeaseDeps } from '../../../../pipeline/ingest/lease.ts';

test('createSeq returns accepts above reverts, and no seq above the reserved ceiling, for any sequence of calls', async () => {
  const calls = fc.array(fc.constantFrom('accept', 'revert', 'lost', 'exceed'), { maxLength: 3000 });
  await fc.assert(
    fc.asyncProperty(calls, fc.integer({ min: 0, max: 5 }), async (steps, margin) => {
      let reserved = 100 + margin;
      let fail = false;
      const seq = createSeq({ seq: 100, seqCeiling: reserved }, async (ceiling) => {
        if (fail) throw new Error('store unavailable');
        reserved = Math.max(reserved, ceiling);
      });
      let lastRevert = 0;
      let highest = 100;
      for (const step of steps) {
        fail = step === 'lost';
        if (step === 'exceed') {
          // A message of another holder, above all seqs so far or below them.
          const other = highest + (highest % 3) - 1;
          seq.exceed(other);
          lastRevert = Math.max(lastRevert, other);
          highest = Math.max(highest, other);
          continue;
        }
        try {
          const given = step === 'accept' ? await seq.forAccept() : await seq.forRevert();
          expect(given).toBeLessThanOrEqual(reserved);
          if (step === 'accept') expect(given).toBeGreaterThan(lastRevert);
          else expect(given).toBeGreaterThan(highest);
          highest = Math.max(highest, given);
          if (step !== 'accept') lastRevert = given;
        } catch {
          expect(fail).toBe(true);
        }
      }
    }),
    { numRuns: 50 },
  );
});

test('createSeq gives a revert n and all accepts after it n + 1', async () => {
  const seq = createSeq({ seq: 10, seqCeiling: 1000 }, async () => {});
  expect([await seq.forAccept(), await seq.forAccept()]).toEqual([10, 10]);
  expect(await seq.forRevert()).toBe(11);
  expect([await seq.forAccept(), await seq.forAccept()]).toEqual([12, 12]);
});

test('a lease asks for seqs from the time of the clock on, also after the machine was suspended', async () => {
  const wallTime = 1_700_000_000_000;
  const asked: unknown[] = [];
  const deps = {
    store: { acquire: async (request: unknown) => (asked.push(request), null) },
    clock: { now: () => wallTime - 7_200_000, wallTime: () => wallTime, sleep },
    settings: { holder: 'test', leaseMs: 10_000 },
  } as unknown as LeaseDeps;
  expect(await acquireLease(deps, 'live')).toBe(null);
  expect(asked).toEqual([expect.objectContaining({ nowMs: wallTime })]);
});

test.each([
  ['has run for longer than it', { now: 10_000, wallTime: 0 }],
  ['was suspended for longer than it', { now: 0, wallTime: 10_000 }],
  ['has run for longer than it while its clock was set back', { now: 10_000, wallTime: -3_600_000 }],
])('a lease is lost once the process %s', async (_, passed) => {
  const time = { now: 1000, wallTime: 5000 };
  const lease = await acquireLease(
    {
      store: {
        acquire: async () => ({ chunk: { name: 'live' }, epoch: 1, seq: 1, seqCeiling: 1000 }),
        release: async () => {},
      },
      clock: { now: () => time.now, wallTime: () => time.wallTime, sleep },
      settings: { holder: 'test', leaseMs: 10_000 },
      log: pino({ level: 'silent' }),
    } as unknown as LeaseDeps,
    'live',
  );
  time.now += Math.min(passed.now, 9999);
  time.wallTime += Math.min(passed.wallTime, 9999);
  expect(() => lease!.assertValid()).not.toThrow();
  time.now += passed.now - Math.min(passed.now, 9999);
  time.wallTime += passed.wallTime - Math.min(passed.wallTime, 9999);
  expect(() => lease!.assertValid()).toThrow(expect.objectContaining({ code: 'LEASE_LOST' }));
  await lease!.release();
});
