import { expect, it } from 'vitest';

import { createPace } from '../../../../pipeline/observe/pace.ts';

function paceOf(share: number, mostMs: number) {
  const spent = { active: 500, idle: 500 };
  const pace = createPace({ share, mostMs }, () => ({ ...spent }));
  return { pace, spent };
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
  const { pace, spent } = paceOf(0.25, 1000);
  pace.begin();
  spent.active += 900;
  expect(pace.restMs()).toBe(100);
  spent.active += 100;
  expect(pace.restMs()).toBe(0);
});
