import { expect, test } from 'vitest';
import { z } from 'zod';

import { describeApi } from '../../../../api/http/openapi.ts';
import { apiRoutes } from '../../../../api/routes.ts';
import type { RouteDeps } from '../../../../api/routes.ts';

const described = z.object({
  paths: z.record(
    z.string(),
    z.record(
      z.string(),
      z.object({
        operationId: z.string(),
        summary: z.string().min(1),
        description: z.string().optional(),
        responses: z.record(z.string(), z.object({ description: z.string().min(1) })),
      }),
    ),
  ),
});

test('describes every operation, its answer and its errors', () => {
  // The declarations need no store; only the handlers would.
  const { paths } = described.parse(describeApi(apiRoutes({} as RouteDeps)));
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
