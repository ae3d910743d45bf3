import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, expect, test } from 'vitest';

/** `.ci/summary.mjs` on reports of the shape that vitest writes. */
const script = fileURLToPath(new URL('../../../.ci/summary.mjs', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'tds-summary-'));
afterAll(() => rmSync(folder, { recursive: true }));

interface Result {
  status: string;
  fullName: string;
  meta?: { skipReason?: string };
}

interface Run {
  /** null: no report was written. */
  tests: Result[] | null;
  exitCode?: number;
  /** Name of a file that could not be loaded. */
  broken?: string;
}

function writeReport(file: string, { tests, broken }: Run): void {
  rmSync(file, { force: true });
  if (tests === null) return;
  const status = tests.some((one) => one.status === 'failed') ? 'failed' : 'passed';
  const files = [{ status, name: 'a.test.ts', message: '', assertionResults: tests }];
  const unloaded = { status: 'failed', name: broken, message: 'no such module', assertionResults: [] };
  writeFileSync(file, JSON.stringify({ testResults: broken === undefined ? files : [...files, unloaded] }));
}

function summarize(...runs: Run[]) {
  const args = runs.flatMap((run, index) => {
    const file = join(folder, `report-${index}.json`);
    writeReport(file, run);
    return [`run ${index}`, file, String(run.exitCode ?? 0)];
  });
  const { status, stdout } = spawnSync(process.execPath, [script, ...args], { encoding: 'utf8' });
  return { code: status, last: stdout.trim().split('\n').at(-1), all: stdout };
}

const passed = { status: 'passed', fullName: 'works' };
const failed = { status: 'failed', fullName: 'breaks' };

test('summary succeeds when all tests passed', () => {
  expect(summarize({ tests: [passed, passed] })).toMatchObject({ code: 0, last: '2 passed, 0 failed' });
});

test('summary fails when a test failed or a file could not be loaded', () => {
  expect(summarize({ tests: [passed, failed], exitCode: 1 })).toMatchObject({
    code: 1,
    last: '1 passed, 1 failed',
  });
  expect(summarize({ tests: [passed], broken: 'b.test.ts' })).toMatchObject({
    code: 1,
    last: '1 passed, 1 failed',
  });
});

test('summary fails when the command failed although every test passed, or before any ran', () => {
  expect(summarize({ tests: [passed], exitCode: 1 })).toMatchObject({ code: 1, last: '1 passed, 0 failed' });
  expect(summarize({ tests: null, exitCode: 2 })).toMatchObject({ code: 1, last: '0 passed, 0 failed' });
});

test('summary fails when no test ran although the command succeeded', () => {
  expect(summarize({ tests: [] }).code).toBe(1);
  expect(summarize({ tests: null }).code).toBe(1);
  expect(summarize({ tests: [{ status: 'skipped', fullName: 'later SKIPPED: no reason to' }] }).code).toBe(1);
  expect(summarize().code).toBe(1);
});

test.each(['skipped', 'todo', 'pending'])('summary fails when a test is %s without a reason', (status) => {
  expect(summarize({ tests: [passed, { status, fullName: 'later' }] })).toMatchObject({ code: 1 });
  expect(summarize({ tests: [passed, { status, fullName: 'later SKIPPED: ' }] })).toMatchObject({ code: 1 });
  const inTitle = { status, fullName: 'later SKIPPED: needs a container engine' };
  expect(summarize({ tests: [passed, inTitle] })).toMatchObject({ code: 0, last: '1 passed, 0 failed' });
  const inMeta = { status, fullName: 'later', meta: { skipReason: 'needs a network' } };
  const { code, all } = summarize({ tests: [passed, inMeta] });
  expect(code).toBe(0);
  expect(all).toContain('needs a network');
});

test('summary adds up two reports', () => {
  expect(summarize({ tests: [passed, passed] }, { tests: [passed] })).toMatchObject({
    code: 0,
    last: '3 passed, 0 failed',
  });
});

test.each<[string, Run]>([
  ['a failed test', { tests: [failed], exitCode: 1 }],
  ['a failed command', { tests: [passed], exitCode: 1 }],
  ['no report', { tests: null }],
  ['no test', { tests: [] }],
  ['a skipped test without a reason', { tests: [passed, { status: 'skipped', fullName: 'later' }] }],
])('summary fails when either of two runs has %s', (_, bad) => {
  expect(summarize({ tests: [passed] }, bad).code).toBe(1);
  expect(summarize(bad, { tests: [passed] }).code).toBe(1);
});

test('summary names the run and counts the failures of both', () => {
  const { last, all } = summarize(
    { tests: [passed, failed], exitCode: 1 },
    { tests: [passed, failed], exitCode: 1 },
  );
  expect(last).toBe('2 passed, 2 failed');
  expect(all).toContain('run 1 exited with code 1');
});
