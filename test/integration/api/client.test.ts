import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { TokenDataClient } from '../../../client/src/client.ts';
import type { Transfer } from '../../../client/src/client.ts';
import { ApiError } from '../../../client/src/errors.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { operationsOf, valueOf } from '../../support/parameters.ts';
import { BOB, COIN, writeSmallChain } from '../../support/small-chain.ts';

/** The typed client against the service: every operation of the document, iterators, and the examples as programs. */

let world: ApiWorld;
let client: TokenDataClient;
let apiKey = '';
let session = '';
/** The requests that the client made: method and path. */
const requested: string[] = [];

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey } = await writeSmallChain(world));
  ({ token: session } = await world.makeUser('caller'));
  client = new TokenDataClient({
    baseUrl: world.url,
    apiKey,
    session,
    fetch: async (input, init) => {
      const request = new Request(input, init);
      requested.push(`${request.method} ${decodeURIComponent(new URL(request.url).pathname)}`);
      return await fetch(request);
    },
  });
}, 300_000);
afterAll(async () => {
  await world?.close();
});

const documented = z.object({
  paths: z.record(
    z.string(),
    z.record(z.string(), z.object({ operationId: z.string(), responses: z.record(z.string(), z.unknown()) })),
  ),
});

test('every operation of the document is called by its method, and answers as documented', async () => {
  const { json } = await world.call('GET', '/api/openapi.json');
  const { paths } = documented.parse(json);
  const methods = client as unknown as Record<string, ((options: unknown) => Promise<unknown>) | undefined>;
  for (const { method, path, parameters } of operationsOf(json)) {
    const operation = paths[path]?.[method.toLowerCase()];
    const given = parameters.filter(({ required, name }) => required || name === 'token' || name === 'wait');
    const valuesIn = (place: string) =>
      Object.fromEntries(
        given.filter((one) => one.in === place).map(({ name }) => [name, valueOf(path, name)]),
      );
    const body = method === 'GET' || method === 'DELETE' ? {} : { body: {} };
    const options = { path: valuesIn('path'), query: valuesIn('query'), parseAs: 'text', ...body };
    const call = methods[operation?.operationId ?? ''];
    requested.length = 0;
    const status = await call?.call(client, options).then(
      () => 200,
      (error: unknown) => (error instanceof ApiError ? error.status : String(error)),
    );
    const sent = path.replace(/\{(\w+)\}/g, (_, name: string) => String(options.path[name]));
    expect(requested, operation?.operationId).toEqual([`${method} ${sent}`]);
    const known = Object.keys(operation?.responses ?? {});
    expect(status === 200 || known.includes(String(status)), `${operation?.operationId}: ${status}`).toBe(
      true,
    );
    if (method === 'GET') expect([200, 400, 403, 404], operation?.operationId).toContain(status);
  }
});

test('all transfers of an account are iterated, with amounts as integers', async () => {
  const rows: Transfer[] = [];
  for await (const row of client.transfers.iterate({ account: BOB, limit: 2 })) rows.push(row);
  const page = await client.listTransfers({ query: { account: BOB, limit: 100 } });
  expect(rows.length).toBeGreaterThan(2);
  expect(rows).toEqual(
    page.results.map((row) => ({ ...row, amount: BigInt(row.value), feeAmount: BigInt(row.fee) })),
  );
});

/** An answer that breaks off after so many bytes. */
function cutAfter(answer: Response, bytes: number): Response {
  let left = bytes;
  const cut = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      controller.enqueue(chunk.subarray(0, left));
      left -= chunk.length;
      if (left <= 0) controller.error(new Error('cut'));
    },
  });
  return new Response(answer.body?.pipeThrough(cut), answer);
}

test('the stream goes on after its connection was cut', async () => {
  const { headers } = await world.call('GET', '/api/tokens/?limit=1', { headers: { 'api-key': apiKey } });
  const top = Number(headers.get('x-indexed-block'));
  let connections = 0;
  const cutting = new TokenDataClient({
    baseUrl: world.url,
    apiKey,
    fetch: async (input, init) => {
      const answer = await fetch(input, init);
      connections += 1;
      return connections < 4 ? cutAfter(answer, 3000) : answer;
    },
  });
  const places: string[] = [];
  for await (const { type, data } of cutting.stream({ token: COIN, from: 0 })) {
    if (type === 'transfer') places.push(`${data.block} ${data.event_index}`);
    if (type === 'block' && data.height === top) break;
  }
  const listed: string[] = [];
  for await (const { block, event_index: index } of client.transfers.iterate({ token: COIN, order: 'asc' }))
    listed.push(`${block} ${index}`);
  expect(places).toEqual(listed);
  expect(connections).toBe(4);
});

/** Runs an example with the service's address and key; returns what it prints. */
async function example(
  name: string,
  args: readonly string[],
  isEnough = (_: string) => false,
): Promise<string> {
  const file = fileURLToPath(new URL(`../../../client/examples/${name}`, import.meta.url));
  const child = spawn(process.execPath, ['--conditions=source', file, ...args], {
    env: { PATH: process.env['PATH'] ?? '', TDS_URL: world.url, TDS_KEY: apiKey },
  });
  let printed = '';
  const onText = (text: Buffer): void => {
    printed += text.toString();
    if (isEnough(printed)) child.kill();
  };
  child.stdout.on('data', onText);
  child.stderr.on('data', onText);
  await new Promise((resolve) => child.once('close', resolve));
  return printed;
}

test('the examples run', async () => {
  expect(await example('pnl.ts', [BOB, '2023-11-14T00:00:00Z'])).toMatch(
    /profit and loss -?\d+\.\d\d USD\n$/,
  );
  expect(await example('duckdb.ts', [COIN])).toMatch(/^\{"to_address":"0x[0-9a-f]{64}","transfers":"\d+"/);
});
