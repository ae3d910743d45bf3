import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

import { expect, test } from 'vitest';
import { z } from 'zod';

import { describedApi, documentOf } from '../../support/document.ts';

test('reference pages match the declarations they are generated from', () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['docs/generate.mjs', '--check'], {
    encoding: 'utf8',
  });
  expect(stdout + stderr).toBe('');
  expect(status).toBe(0);
});

const described = documentOf(z.object({ parameters: z.array(z.object({ name: z.string() })).default([]) }));

test('the reference says of no route with as_of_hash that it never returns 409', () => {
  const text = readFileSync('docs/routes.md', 'utf8').replaceAll('\n', ' ');
  const [sentence = ''] = /[^.]*never returns? 409/.exec(text) ?? [];
  const named = [...sentence.matchAll(/`([A-Z]+) (\/api\/[^`]*)`/g)];
  expect(named.length).toBeGreaterThan(0);
  const { paths } = described.parse(describedApi());
  for (const [, method = '', path = ''] of named) {
    const names = paths[path]?.[method.toLowerCase()]?.parameters.map(({ name }) => name);
    expect(names, path).not.toContain('as_of_hash');
  }
});
