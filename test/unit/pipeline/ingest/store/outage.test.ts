import { afterAll, expect, test, vi } from 'vitest';

import { createLogger } from '../../../../../infra/log.ts';
import { createPool } from '../../../../../infra/postgres/client.ts';
import { createCommitmentStore } from '../../../../../pipeline/ingest/store/commitments.ts';
import { createStandards } from '../../../../../pipeline/ingest/contracts/standards.ts';
import { toFelt } from '../../../../../schemas/felt.ts';

const pool = createPool('postgres://localhost:1/none', { applicationName: 'test' });
afterAll(() => pool.end());

const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
const unavailable = { code: 'STORE_UNAVAILABLE', retryable: true };

test('the store of commitments reports an outage of PostgreSQL as retryable', async () => {
  vi.spyOn(pool, 'query').mockRejectedValue(refused);
  const store = createCommitmentStore(pool);
  for (const call of [
    () => store.verifiedVersions('events'),
    () => store.versions(),
    () => store.lowest(),
    () => store.add([]),
    () => store.forget(7),
  ])
    await expect(call()).rejects.toMatchObject(unavailable);
});

test('a look-up of a standard reports an outage of PostgreSQL while it clears its alarm as retryable', async () => {
  const answers = vi.fn().mockResolvedValueOnce({ rows: [] }).mockRejectedValue(refused);
  vi.spyOn(pool, 'query').mockImplementation(answers);
  const contract = toFelt(1n);
  const standards = createStandards({
    node: {
      call: async () => [],
      getClassAt: async () => ({ abi: [] }),
      getClassHashAt: async () => toFelt(2n),
    },
    pool,
    log: createLogger('test', 'silent'),
  });
  const at = { height: 7, hash: toFelt(7n) };
  await expect(standards.resolve([contract], at)).rejects.toMatchObject(unavailable);
  expect(answers).toHaveBeenCalledTimes(2);
});
