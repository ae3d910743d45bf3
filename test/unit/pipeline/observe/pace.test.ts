import { expect, it } from 'vitest';

import { createPace, createTaskPace } from '../../../../pipeline/observe/pace.ts';

function paceOf(maxBusyShare: number, maxDelayMs: number) {
  const spent = { active: 500, idle: 500 };
  const newest = { sinceMs: Infinity };
  const pace = createPace(
    { maxBusyShare, blockMs: 300, maxDelayMs },
    () => newest.sinceMs,
    () => ({ ...spent }),
  );
  return { pace, spent, newest };
}

it('lets work begin at first, then once the process was busy for no more than its share since', () => {
  const { pace, spent } = paceOf(0.25, 1000);
  expect(pace.restMs()).toBe(0);
  pace.begin();
  spent.active += 50;
  expect(pace.restMs()).toBe(150);
  spent.idle += 100;
  expect(pace.restMs()).toBe(50);
  spent.idle += 50;
  expect(pace.restMs()).toBe(0);
  pace.begin();
  spent.idle += 1;
  expect(pace.restMs()).toBe(0);
});

it('never lets work wait longer than the most, however busy the process is with other work', () => {
  const { pace, spent, newest } = paceOf(0.25, 1000);
  pace.begin();
  spent.active += 900;
  expect(pace.restMs()).toBe(100);
  newest.sinceMs = 50;
  expect(pace.restMs()).toBe(250);
  newest.sinceMs = Infinity;
  spent.active += 100;
  expect(pace.restMs()).toBe(0);
});

it('lets no work begin soon after a block', () => {
  const { pace, spent, newest } = paceOf(0.25, 1000);
  newest.sinceMs = 100;
  expect(pace.restMs()).toBe(200);
  newest.sinceMs = 300;
  expect(pace.restMs()).toBe(0);
  pace.begin();
  spent.idle += 60_000;
  newest.sinceMs = 0;
  expect(pace.restMs()).toBe(300);
});

it('holds work back for no longer than the most where blocks follow each other quickly', () => {
  const { pace, spent, newest } = paceOf(0.25, 1000);
  newest.sinceMs = 0;
  expect(pace.restMs()).toBe(300);
  spent.idle += 250;
  expect(pace.restMs()).toBe(300);
  spent.idle += 550;
  expect(pace.restMs()).toBe(200);
  spent.idle += 200;
  expect(pace.restMs()).toBe(0);
  pace.begin();
  expect(pace.restMs()).toBe(300);
});

it('paces tasks by the blocks that are read', () => {
  let sinceNewestMs = 0;
  const pace = createTaskPace({ sinceNewestMs: () => sinceNewestMs });
  expect(pace.restMs()).toBe(700);
  sinceNewestMs = Infinity;
  expect(pace.restMs()).toBe(0);
});
