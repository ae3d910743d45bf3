import { expect, test } from 'vitest';

import { tdsProcesses } from '../../../../../infra/bin/operator/run-tds.ts';

test('a command that fails with a stack is reported by its message', async () => {
  const failing = `console.error('{"msg":"a log line"}'); console.error(new Error('Memory limit exceeded').stack); process.exit(1)`;
  const runTds = tdsProcesses({
    NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(failing)}`,
  });
  await expect(runTds(['rebuild', 'tokens'], new AbortController().signal)).rejects.toMatchObject({
    code: 'CONFLICT',
    message: 'Error: Memory limit exceeded',
  });
});
