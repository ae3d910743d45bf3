import { readFileSync, readdirSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

import { expect, test } from 'vitest';

const dist = new URL('../../../console/dist/', import.meta.url);
const LIMIT_BYTES = 150_000;

/** The scripts that a page loads, with those that they import. */
function scriptsOf(page: string): string[] {
  const html = readFileSync(new URL(page, dist), 'utf8');
  return [...html.matchAll(/\/(assets\/[\w.-]+\.js)/g)].map(([, name = '']) => name);
}

test('the console, without the API reference, loads less than 150 KB of compressed script', () => {
  const reference = scriptsOf('docs.html').filter((name) => !scriptsOf('index.html').includes(name));
  const scripts = readdirSync(new URL('assets/', dist))
    .filter((name) => name.endsWith('.js'))
    .map((name) => `assets/${name}`)
    .filter((name) => !reference.includes(name));
  expect(scripts).toEqual(expect.arrayContaining(scriptsOf('index.html')));
  const bytes = scripts.map((name) => gzipSync(readFileSync(new URL(name, dist))).length);
  expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThan(LIMIT_BYTES);
});
