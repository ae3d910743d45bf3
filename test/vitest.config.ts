import { fileURLToPath } from 'node:url';

import { defineConfig } from 'vitest/config';
import { BaseSequencer } from 'vitest/node';
import type { Reporter, TestSpecification } from 'vitest/node';

/**
 * Four projects: `npm test` runs `unit`, then `integration` and `e2e`, which share one set of embedded servers
 * (support/global-setup.ts); `npm run test:long` runs `long`: what takes minutes by nature.
 * A path runs the files that match it: `npx vitest run --config test/vitest.config.ts integration/kafka`.
 */
const root = fileURLToPath(new URL('..', import.meta.url));

/** The JSON report drops the reason given to `ctx.skip('…')`; copy it to `meta`, which the report keeps. */
const skipReasons: Reporter = {
  onTestCaseResult(test) {
    const result = test.result();
    if (result.state === 'skipped' && result.note !== undefined) {
      Object.assign(test.meta(), { skipReason: result.note });
    }
  },
};

/** The soak takes minutes but little CPU: start it first, so that the other files run beside it. */
class SoakFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isSoak = ({ moduleId }: TestSpecification): boolean => moduleId.endsWith('/soak.test.ts');
    const sorted = await super.sort(files);
    return [...sorted.filter(isSoak), ...sorted.filter((file) => !isSoak(file))];
  }
}

/**
 * Files that run at a time, on two cores: those of `integration` and `long` also wait, and a third one uses the time; those of
 * `e2e` run whole services, some of them two side by side.
 */
const WORKERS = { unit: 2, integration: 3, e2e: 1, long: 3 };

/** Settings of a project whose tests run on real servers, or (`unit`) without any. */
function project(
  name: keyof typeof WORKERS,
  groupOrder: number,
  options: { testTimeout: number; usesServers: boolean },
) {
  return {
    extends: true as const,
    test: {
      name,
      include: [`test/${name}/**/*.test.ts`],
      sequence: { groupOrder },
      maxWorkers: WORKERS[name],
      testTimeout: options.testTimeout,
      ...(options.usesServers ? { globalSetup: ['test/support/global-setup.ts'], hookTimeout: 300_000 } : {}),
    },
  };
}

export default defineConfig({
  root,
  test: {
    sequence: { sequencer: SoakFirst },
    // Concurrent tests of the long suite run processes of their own: five at a time take a third more CPU than two.
    maxConcurrency: 2,
    reporters: ['default', skipReasons, 'json'],
    // `expect.poll` gives up after a second by default, which a shared machine does not always keep.
    expect: { poll: { timeout: 60_000 } },
    // `.ci/run` reads it; `--outputFile.json=…` puts it elsewhere.
    outputFile: { json: '.cache/test-report.json' },
    projects: [
      // Time-outs are generous because a shared machine may be ten times slower; no test asserts a duration near them.
      project('unit', 0, { testTimeout: 120_000, usesServers: false }),
      project('integration', 1, { testTimeout: 300_000, usesServers: true }),
      project('e2e', 2, { testTimeout: 300_000, usesServers: true }),
      project('long', 3, { testTimeout: 900_000, usesServers: true }),
    ],
  },
});
