import { existsSync } from 'node:fs';

import { expect, test } from 'vitest';

import { chainProjections } from '../../../projections/index.ts';

test.each(chainProjections.map(({ name }) => name))('%s has a test of its projector', (name) => {
  expect(existsSync(new URL(`${name}/projector.test.ts`, import.meta.url))).toBe(true);
});
