import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

test('the API reads no environment variable: settings reach it through the configuration', () => {
  const files = readdirSync('api', { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  );
  expect(files.length).toBeGreaterThan(50);
  const readers = files.filter((name) => readFileSync(join('api', name), 'utf8').includes('process.env'));
  expect(readers).toEqual([]);
});
