import { fileURLToPath } from 'node:url';

import { defineConfig } from 'vitest/config';
import { BaseSequencer } from 'vitest/node';
import type { Reporter, TestSpecification } from 'vitest/node';

/**
 * One run, three projects, one after the other, two files at a time: `unit`, then `integration` and `e2e` on one back end
 * (support/global-setup.ts). `npx vitest run --config test/vitest.config.ts --project unit` runs one of them; a path runs
 * the files that match it. `.ci/run` reads the JSON report.
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

/** The soak takes its minutes and little of the machine: it begins first, and the others run beside it. */
class SoakFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isSoak = ({ moduleId }: TestSpecification): boolean => moduleId.endsWith('/soak.test.ts');
    const sorted = await super.sort(files);
    return [...sorted.filter(isSoak), ...sorted.filter((file) => !isSoak(file))];
  }
}

const onBackend = {
  globalSetup: ['test/support/global-setup.ts'],
  testTimeout: 120_000,
  hookTimeout: 240_000,
};

export default defineConfig({
  root,
  test: {
    sequence: { sequencer: SoakFirst },
    reporters: ['default', skipReasons, ['json', { outputFile: '.cache/test-report.json' }]],
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          sequence: { groupOrder: 0 },
          maxWorkers: 2,
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
          maxWorkers: 2,
        },
      },
      {
        extends: true,
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          sequence: { groupOrder: 2 },
          ...onBackend,
          maxWorkers: 2,
          testTimeout: 300_000,
        },
      },
    ],
  },
});
