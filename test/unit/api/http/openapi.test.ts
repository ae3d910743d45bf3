import { expect, test } from 'vitest';
import { z } from 'zod';

import { describedApi, documentOf } from '../../../support/document.ts';

const described = documentOf(
  z.object({
    operationId: z.string(),
    summary: z.string().min(1),
    description: z.string().optional(),
    responses: z.record(z.string(), z.object({ description: z.string().min(1) })),
  }),
);

test('describes every operation, its answer and its errors', () => {
  const { paths } = described.parse(describedApi());
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  expect(operations.length).toBeGreaterThan(80);
  const undescribed = operations.filter(({ description = '' }) => description === '');
  expect(undescribed.map(({ operationId }) => operationId)).toEqual([]);
  for (const { operationId, responses } of operations) {
    const statuses = Object.keys(responses);
    expect(
      statuses.some((status) => status.startsWith('2')),
      operationId,
    ).toBe(true);
    expect(statuses, operationId).toEqual(expect.arrayContaining(['404', '429', '500', '503']));
  }
});
