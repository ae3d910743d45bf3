import { expect, test } from 'vitest';
import { z } from 'zod';

import { TokenDataClient } from '../../../client/src/index.ts';
import { withSamples } from '../../../console/src/code-samples.ts';
import { describedApi, documentOf } from '../../support/document.ts';

const ORIGIN = 'https://tokens.example';
const samples = z.tuple([
  z.object({ lang: z.literal('bash'), source: z.string() }),
  z.object({ lang: z.literal('typescript'), source: z.string() }),
  z.object({ lang: z.literal('python'), source: z.string() }),
]);
const described = documentOf(
  z.object({
    operationId: z.string(),
    parameters: z
      .array(z.object({ name: z.string(), in: z.string(), required: z.boolean().default(false) }))
      .default([]),
    'x-code-samples': samples,
  }),
);
const document = describedApi() as unknown as Parameters<typeof withSamples>[0];
const operations = Object.entries(described.parse(withSamples(document, ORIGIN)).paths).flatMap(
  ([path, methods]) => Object.entries(methods).map(([method, one]) => ({ path, method, ...one })),
);
const client: object = new TokenDataClient({ baseUrl: ORIGIN });

test.each(operations)('shows how $operationId is called', (operation) => {
  const { path, method, operationId, parameters } = operation;
  const [curl, typeScript, python] = operation['x-code-samples'];
  const url = new URL(/"(https:[^"]+)"/.exec(curl.source)?.[1] ?? '');
  const shape = path
    .split('/')
    .map((part) => part.replaceAll(/\{\w+\}/g, '[^/{}]+').replaceAll('.', String.raw`\.`));
  expect(url.pathname).toMatch(new RegExp(`^${shape.join('/')}$`));
  expect(curl.source.includes(`-X ${method.toUpperCase()}`)).toBe(method !== 'get');
  expect(python.source).toContain(`requests.${method}(\n    "${url.origin}${url.pathname}"`);
  expect(client).toHaveProperty(operationId, expect.any(Function));
  expect(typeScript.source).toContain(`client.${operationId}(`);
  for (const { name } of parameters.filter((one) => one.in === 'query' && one.required)) {
    expect(url.searchParams.get(name)).not.toBe(null);
    expect(typeScript.source).toContain(`${name}: `);
    expect(python.source).toContain(`"${name}": `);
  }
});
