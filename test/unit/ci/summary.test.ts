import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, expect, test } from 'vitest';

/** The judgement of `.ci/run`, on reports of the shape that vitest writes. */
const script = fileURLToPath(new URL('../../../.ci/summary.mjs', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'tds-summary-'));
afterAll(() => rmSync(folder, { recursive: true }));

interface Result {
  status: string;
  fullName: string;
  meta?: { skipReason?: string };
}

function judge(tests: Result[] | null, options: { npm?: number; broken?: string } = {}) {
  const file = join(folder, 'report.json');
  rmSync(file, { force: true });
  if (tests !== null) {
    const status = tests.some((one) => one.status === 'failed') ? 'failed' : 'passed';
    const broken = {
      status: 'failed',
      name: options.broken,
      message: 'no such module',
      assertionResults: [],
    };
    const files = [{ status, name: 'a.test.ts', message: '', assertionResults: tests }];
    const testResults = options.broken === undefined ? files : [...files, broken];
    writeFileSync(file, JSON.stringify({ testResults }));
  }
  const { status, stdout } = spawnSync(process.execPath, [script, file, String(options.npm ?? 0)], {
    encoding: 'utf8',
  });
  return { code: status, last: stdout.trim().split('\n').at(-1), all: stdout };
}

const passed = { status: 'passed', fullName: 'works' };

test('all passed', () => {
  expect(judge([passed, passed])).toMatchObject({ code: 0, last: '2 passed, 0 failed' });
});

test('one failed, or a file could not be loaded', () => {
  expect(judge([passed, { status: 'failed', fullName: 'breaks' }], { npm: 1 })).toMatchObject({
    code: 1,
    last: '1 passed, 1 failed',
  });
  expect(judge([passed], { broken: 'b.test.ts' })).toMatchObject({ code: 1, last: '1 passed, 1 failed' });
});

test('npm test failed although every test passed, or before there was any', () => {
  expect(judge([passed], { npm: 1 })).toMatchObject({ code: 1, last: '1 passed, 0 failed' });
  expect(judge(null, { npm: 2 })).toMatchObject({ code: 1, last: '0 passed, 0 failed' });
});

test('none ran, though npm test ended well', () => {
  expect(judge([]).code).toBe(1);
  expect(judge(null).code).toBe(1);
  expect(judge([{ status: 'skipped', fullName: 'later SKIPPED: no reason to' }]).code).toBe(1);
});

test.each(['skipped', 'todo', 'pending'])('%s needs a reason', (status) => {
  expect(judge([passed, { status, fullName: 'later' }])).toMatchObject({ code: 1 });
  expect(judge([passed, { status, fullName: 'later SKIPPED: ' }])).toMatchObject({ code: 1 });
  const named = judge([passed, { status, fullName: 'later SKIPPED: needs a container engine' }]);
  expect(named).toMatchObject({ code: 0, last: '1 passed, 0 failed' });
  const noted = judge([passed, { status, fullName: 'later', meta: { skipReason: 'needs a network' } }]);
  expect(noted.code).toBe(0);
  expect(noted.all).toContain('needs a network');
});
