import { expect, test, vi } from 'vitest';
import { z } from 'zod';

import { createPool } from '../../../../../infra/postgres/client.ts';
import { createStatements } from '../../../../../pipeline/ingest/store/sql.ts';

test.each([
  [
    'a refused connection',
    Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }),
    { retryable: true },
  ],
  ['a bug', new RangeError('int8 out of the safe range'), { name: 'RangeError' }],
])('rows classifies %s', async (_, failure, expected) => {
  const pool = createPool('postgres://localhost:1/none', { applicationName: 'test' });
  vi.spyOn(pool, 'query').mockImplementation(() => Promise.reject(failure));
  await expect(createStatements(pool).rows(z.unknown(), 'SELECT 1')).rejects.toMatchObject(expected);
  await pool.end();
});
