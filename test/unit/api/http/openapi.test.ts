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

const asOfBlock = documentOf(
  z.object({
    operationId: z.string(),
    parameters: z.array(z.object({ name: z.string() })).default([]),
    responses: z.record(z.string(), z.unknown()),
  }),
);
const components = z.object({
  components: z.object({
    schemas: z.object({
      RevertedBlock: z.object({ properties: z.looseObject({}), required: z.string().array() }),
    }),
  }),
});

test('describes the 409 of every operation that answers as of a block', () => {
  const document = describedApi();
  const { properties, required } = components.parse(document).components.schemas.RevertedBlock;
  expect(properties).toMatchObject({
    code: { const: 'reverted_block' },
    canonical_hash: { type: 'string', pattern: '^0x[0-9a-f]{64}$' },
  });
  expect(required).toEqual(expect.arrayContaining(['code', 'canonical_hash']));
  const asOf = Object.values(asOfBlock.parse(document).paths)
    .flatMap((methods) => Object.values(methods))
    .filter(({ parameters }) => parameters.some(({ name }) => name === 'as_of_block'));
  expect(asOf.length).toBeGreaterThan(15);
  const untyped = asOf.filter(
    ({ responses }) => !JSON.stringify(responses['409']).includes('#/components/schemas/RevertedBlock'),
  );
  expect(untyped.map(({ operationId }) => operationId)).toEqual([]);
});
