import { fileURLToPath } from 'node:url';

import { defineConfig } from 'vitest/config';
import type { Reporter } from 'vitest/node';

/**
 * One run, three projects, one after the other: `unit` in parallel, then `integration` and `e2e` one file at a time on
 * one back end (support/global-setup.ts). `npx vitest run --config test/vitest.config.ts --project unit` runs one of them;
 * a path runs the files that match it. `.ci/run` reads the JSON report.
 */
const root = fileURLToPath(new URL('..', import.meta.url));

/** The JSON report has no place for the reason given to `ctx.skip('…')`; it goes where the report keeps extras. */
const skipReasons: Reporter = {
  onTestCaseResult(test) {
    const result = test.result();
    if (result.state === 'skipped' && result.note !== undefined) {
      Object.assign(test.meta(), { skipReason: result.note });
    }
  },
};

const onBackend = {
  globalSetup: ['test/support/global-setup.ts'],
  fileParallelism: false,
  testTimeout: 120_000,
  hookTimeout: 240_000,
};

export default defineConfig({
  root,
  test: {
    reporters: ['default', skipReasons, ['json', { outputFile: '.cache/test-report.json' }]],
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          sequence: { groupOrder: 0 },
          // No test asserts a time: a busy machine may be ten times slower.
          testTimeout: 120_000,
        },
      },
      {
        extends: true,
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          sequence: { groupOrder: 1 },
          ...onBackend,
        },
      },
      {
        extends: true,
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          sequence: { groupOrder: 2 },
          ...onBackend,
          testTimeout: 300_000,
        },
      },
    ],
  },
});
