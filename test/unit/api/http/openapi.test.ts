import { maxHeaderSize } from 'node:http';

import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { expect, test } from 'vitest';
import { z } from 'zod';

import { examples } from '../../../../api/http/examples.ts';
import { settings } from '../../../../infra/config.ts';
import { describedApi, documentOf } from '../../../support/document.ts';

const described = documentOf(
  z.object({
    operationId: z.string(),
    summary: z.string().min(1),
    description: z.string(),
    parameters: z.array(z.object({ name: z.string() })).default([]),
    requestBody: z.unknown().optional(),
    responses: z.record(z.string(), z.unknown()),
  }),
);
const operations = () =>
  Object.values(described.parse(describedApi()).paths).flatMap((methods) => Object.values(methods));

test('describes every operation, its answer and its errors', () => {
  expect(operations().length).toBeGreaterThan(80);
  for (const { operationId, description, responses } of operations()) {
    // Its own sentences come before its limits.
    expect(description, operationId).toMatch(/^[A-Z`].+\.\n\n\*\*Limits\*\*\n\n- /s);
    const statuses = Object.keys(responses);
    expect(
      statuses.some((status) => status.startsWith('2')),
      operationId,
    ).toBe(true);
    expect(statuses, operationId).toEqual(expect.arrayContaining(['404', '429', '500', '503']));
  }
});

const components = z.object({
  components: z.object({
    schemas: z.object({
      RevertedBlock: z.object({ properties: z.looseObject({}), required: z.string().array() }),
    }),
    responses: z.record(z.string(), z.unknown()),
  }),
});

test('describes the 409 of every operation that answers as of a block', () => {
  const { schemas, responses: shared } = components.parse(describedApi()).components;
  const { properties, required } = schemas.RevertedBlock;
  expect(properties).toMatchObject({
    code: { const: 'reverted_block' },
    canonical_hash: { type: 'string', pattern: '^0x[0-9a-f]{64}$' },
  });
  expect(required).toEqual(expect.arrayContaining(['code', 'canonical_hash']));
  const asOf = operations().filter(({ parameters }) => parameters.some(({ name }) => name === 'as_of_block'));
  expect(asOf.length).toBeGreaterThan(15);
  for (const { operationId, responses } of asOf) {
    const [, name = ''] = /#\/components\/responses\/(\w+)/.exec(JSON.stringify(responses['409'])) ?? [];
    expect(JSON.stringify(shared[name]), operationId).toContain('#/components/schemas/RevertedBlock');
  }
});

test('describes the fields that the errors of one operation have', () => {
  const document = describedApi();
  const { responses: shared } = components.parse(document).components;
  const ajv = new Ajv2020({ strict: false });
  addFormats.default(ajv);
  ajv.addSchema(document, 'document');
  const accepts = (id: string, status: number, body: Record<string, unknown>): boolean => {
    const declared = operations().find(({ operationId }) => operationId === id)?.responses[status];
    const [, name = ''] = /#\/components\/responses\/(\w+)/.exec(JSON.stringify(declared)) ?? [];
    const pointer = `#/components/responses/${name}/content/application~1json/schema`;
    return ajv.validate(`document${pointer}`, {
      detail: 'No.',
      code: 'no',
      status,
      request_id: 'r',
      ...body,
    });
  };
  const conflict = { error: 'Version conflict', server_version: 4 };
  expect(accepts('writeSync', 409, conflict)).toBe(true);
  expect(accepts('writeSync', 409, { ...conflict, server_version: '4' })).toBe(false);
  expect(accepts('writeSync', 409, {})).toBe(false);
  expect(accepts('getNftMetadata', 404, { retry_at: '2027-01-15T08:00:00Z' })).toBe(true);
  expect(accepts('getNftMetadata', 404, { permanent: true })).toBe(true);
  expect(accepts('getNftMetadata', 404, {})).toBe(false);
  expect(shared['Error401']).toMatchObject({
    headers: { 'WWW-Authenticate': { $ref: '#/components/headers/WWW-Authenticate' } },
  });
});

test('states the limits of every operation: calls, bytes of a body, rows of a page', () => {
  for (const { operationId, description, parameters, requestBody } of operations()) {
    const limits = description.split('**Limits**')[1] ?? '';
    expect(limits, operationId).toMatch(/calls of an API key|Calls (of|by)|Failed log-ins/);
    if (requestBody !== undefined) expect(limits, operationId).toMatch(/Bytes of the body: [\d,]+ \(413\)/);
    for (const { name } of parameters)
      if (['limit', 'page_size'].includes(name))
        expect(limits, operationId).toMatch(new RegExp(`\`${name}\`: [\\d,]+, by default \\d+`));
  }
  const limitsOf = (id: string): string =>
    operations().find(({ operationId }) => operationId === id)?.description ?? '';
  expect(limitsOf('getBalances')).toMatch(/by session in a minute: 10 \(429\)[^]*Pairs: 20/);
  expect(limitsOf('getBalanceHistory')).toContain('Transfers of the pair in the window: 100,000 (400)');
  expect(limitsOf('getVerification')).toContain('Calls of an address in a minute: 60 (429)');
  expect(limitsOf('writeSync')).toContain('Bytes of the body: 1,572,864 (413)');
  expect(limitsOf('listDomainChanges')).toContain('`limit`: 1,000, by default 100');
});

test('bounds every list of a body, as each invalid item takes an error in the answer', () => {
  const lists: unknown[] = [];
  JSON.stringify(
    operations().map(({ requestBody }) => requestBody),
    (_, part: unknown) => {
      if (Object(part).type === 'array') lists.push(part);
      return part;
    },
  );
  expect(lists.length).toBeGreaterThan(5);
  for (const list of lists) expect(list).toHaveProperty('maxItems');
});

test('states the defaults of settings that limit calls', () => {
  const text = JSON.stringify(describedApi());
  for (const { env, fallback } of [
    settings.syncCallsPerMinute,
    settings.syncBytesPerHour,
    settings.streamsPerKey,
    settings.streamsPerUser,
    settings.ipBlockWindowSeconds,
  ])
    expect(text).toContain(`\`${env}\` of the operator, by default ${fallback.toLocaleString('en')}`);
  expect(text).toContain(`${maxHeaderSize.toLocaleString('en')} bytes (431)`);
});

test('describes each error once, so that the document stays small', () => {
  for (const { operationId, responses } of operations())
    for (const [status, response] of Object.entries(responses))
      if (Number(status) >= 400)
        expect(response, operationId).toEqual({
          $ref: expect.stringMatching(
            `^#/components/responses/Error${status}((Or)?RevertedBlock|SyncConflict|NftMetadataUnavailable)?$`,
          ),
        });
  expect(JSON.stringify(describedApi()).length).toBeLessThan(600_000);
});

const media = z.object({
  schema: z.looseObject({}),
  example: z.unknown().optional(),
  examples: z.record(z.string(), z.object({ value: z.unknown() })).optional(),
});
const response = z.object({ content: z.record(z.string(), media).default({}) });

/** Deviations of an example from its schema, and what has no example. */
function checker(document: ReturnType<typeof describedApi>) {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  return (declared: unknown): string[] =>
    Object.entries(response.parse(declared).content).flatMap(
      ([type, { schema, example, examples: named }]) => {
        const values = named === undefined ? [example] : Object.values(named).map(({ value }) => value);
        const isBinary = type.startsWith('application/vnd.apache.');
        if (isBinary) return values.some((value) => value !== undefined) ? [`${type} is no text`] : [];
        if (values.length === 0 || values.includes(undefined)) return [`${type} has no example`];
        const isValid = ajv.compile({ ...schema, components: document.components });
        return values.flatMap((value) =>
          isValid(value) ? [] : (isValid.errors ?? []).map((one) => `${one.instancePath} ${one.message}`),
        );
      },
    );
}

test('shows an example of every body, every answer and every error, which its schema accepts', () => {
  const document = describedApi();
  const problemsOf = checker(document);
  for (const { operationId, responses } of operations())
    for (const [status, declared] of Object.entries(responses))
      if (Number(status) < 400) expect(problemsOf(declared), `${operationId} ${status}`).toEqual([]);
  for (const { operationId, requestBody } of operations())
    if (requestBody !== undefined) expect(problemsOf(requestBody), operationId).toEqual([]);
  const errors = Object.entries(document.components?.responses ?? {});
  expect(errors.length).toBeGreaterThan(10);
  for (const [name, declared] of errors) {
    expect(problemsOf(declared), name).toEqual([]);
    expect(JSON.stringify(declared), name).toContain(
      `"status":${name.slice('Error'.length, 'Error409'.length)},`,
    );
  }
});

test('has no example of what is not described', () => {
  const byId = new Map(operations().map((operation) => [operation.operationId, operation]));
  for (const [id, statuses] of Object.entries(examples.answers))
    for (const [status, types] of Object.entries(statuses)) {
      const { content } = response.parse(byId.get(id)?.responses[status]);
      expect(Object.keys(content), `${id} ${status}`).toEqual(expect.arrayContaining(Object.keys(types)));
    }
  const withBody = operations().filter(({ requestBody }) => requestBody !== undefined);
  expect(withBody.map(({ operationId }) => operationId)).toEqual(
    expect.arrayContaining(Object.keys(examples.bodies)),
  );
  const statuses = operations().flatMap(({ responses }) => Object.keys(responses));
  expect(statuses).toEqual(expect.arrayContaining(Object.keys(examples.errors)));
});

test('shows no secret and no address of the machine that recorded', () => {
  const text = JSON.stringify(examples);
  expect(text).not.toMatch(/127\.0\.0\.1|localhost|"(tds_|whsec_)(?!A{30})[\w+/]{30}/);
  expect(text.match(/"token":"(?!0x)[^"]*"/g)).toEqual([`"token":"${'A'.repeat(43)}"`]);
});

/** Properties of answers that are not whole, and of lists that are long or without cursors. */
const SPECIAL = ['complete', 'complete_from', 'count_is_estimate', 'next_cursor', 'next_start_time', 'stale'];

interface Shape {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly required?: readonly string[];
  readonly items?: Shape;
  readonly anyOf?: readonly Shape[];
}

/** Names of properties that a schema has and an example of it lacks. */
function missingIn(example: unknown, schema: Shape, schemas: Readonly<Record<string, Shape>>): string[] {
  const { $ref, items = {}, properties = {}, anyOf = [] } = schema;
  if ($ref !== undefined) return missingIn(example, schemas[$ref.split('/').at(-1) ?? ''] ?? {}, schemas);
  if (Array.isArray(example)) return example.flatMap((one) => missingIn(one, items, schemas));
  if (typeof example !== 'object' || example === null) return [];
  const shown = new Map<string, unknown>(Object.entries(example));
  const alternatives = anyOf.filter(({ required = [] }) => required.every((name) => shown.has(name)));
  return [
    ...alternatives.flatMap((one) => missingIn(example, one, schemas)),
    ...Object.entries(properties).flatMap(([name, one]) =>
      shown.has(name) ? missingIn(shown.get(name), one, schemas) : [name],
    ),
  ];
}

test('shows every property of an answer, also optional ones, except of special answers', () => {
  const { components = {} } = describedApi();
  const missing = operations().flatMap(({ responses }) =>
    Object.values(responses).flatMap((declared) => {
      const { schema, example } = response.parse(declared).content['application/json'] ?? { schema: {} };
      return example === undefined
        ? []
        : missingIn(example, schema, components.schemas as Record<string, Shape>);
    }),
  );
  expect([...new Set(missing)].toSorted()).toEqual(SPECIAL);
});
