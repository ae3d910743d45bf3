import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';

import { settings } from '../../../infra/config.ts';

const readme = readFileSync('README.md', 'utf8');
const rows = readme.split('\n').filter((line) => line.startsWith('| `'));

/** The configuration table says what the program does. */
test.each(Object.values(settings).map(({ env, fallback }) => [env, fallback] as const))(
  'the README tells of %s and its default',
  (env, fallback) => {
    const row = rows.find((line) => line.startsWith(`| \`${env}\``));
    expect(row, `${env} has no row`).toBeDefined();
    const [, , shown = ''] = row!.split('|');
    const isUnset =
      fallback === null || fallback === '' || (Array.isArray(fallback) && fallback.length === 0);
    expect(shown.trim()).toBe(
      isUnset
        ? ''
        : `\`${Array.isArray(fallback) ? fallback.map(String).join(',') : JSON.stringify(fallback).replaceAll('"', '')}\``,
    );
  },
);

test('the README names no setting that is not there', () => {
  const known = new Set<string>(Object.values(settings).map(({ env }) => env));
  const named = rows.flatMap((line) => /^\| `([A-Z][A-Z0-9_]+)`/.exec(line)?.[1] ?? []);
  expect(named.filter((name) => !known.has(name))).toEqual([]);
});
