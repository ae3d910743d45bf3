import { expect, it } from 'vitest';

import { MAX_AGE_MS } from '../../../../api/admin/pipeline-routes.ts';
import { PIPELINE_POLL_MS } from '../../../../console/src/pipeline-poll.ts';
import { HEARTBEAT_MS, LATE_SECONDS, SILENT_SECONDS } from '../../../../infra/health/heartbeat.ts';

/** The process stops just after a heartbeat, and each later step has just missed what the previous one shows. */
it('a stopped process shows in the console within 5 s, half a second of which is left to read and draw', () => {
  expect(LATE_SECONDS * 1000 + MAX_AGE_MS + PIPELINE_POLL_MS).toBeLessThanOrEqual(4500);
});

it('a process is late only after two heartbeats that did not arrive, and silent later', () => {
  expect((LATE_SECONDS * 1000) / HEARTBEAT_MS - 1).toBeGreaterThanOrEqual(2);
  expect(SILENT_SECONDS).toBeGreaterThan(LATE_SECONDS);
});
