import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { TokenDataClient } from '../../../client/src/client.ts';
import { ApiError } from '../../../client/src/errors.ts';
import { syncHeaders } from '../../../client/src/signatures.ts';
import type { StreamMessage } from '../../../client/src/stream.ts';
import { withAmounts } from '../../../client/src/transfer.ts';
import type { Transfer } from '../../../client/src/transfer.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { signatureHeaders } from '../../../schemas/webhooks/signature.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { documentOf } from '../../support/document.ts';
import { isGiven, operationsOf, valueOf } from '../../support/parameters.ts';
import {
  ALICE,
  BOB,
  COIN,
  TX1,
  writeBalance,
  writeObserved,
  writeSmallChain,
} from '../../support/small-chain.ts';
import { aTransfer, writeBlocks } from '../../support/transfer-world.ts';
import type { TableNames, WorldBlock } from '../../support/transfer-world.ts';

/** The typed client against the service: every operation of the document, iterators, the stream, and the examples as programs. */

let world: ApiWorld;
let owner: ClickHouse;
let names: TableNames;
let client: TokenDataClient;
let apiKey = '';
/** The requests that the client made. */
const requested: Request[] = [];

/** Blocks on top of the small chain, without its gaps: a stream goes on only to the next height. */
const FIRST = 41;
const TOP = 50;
const blockAt = (height: number): WorldBlock => ({
  height,
  timestamp: 1_700_000_100 + height,
  chunk: 'live',
  transfers: Array.from({ length: 4 }, (_, position) =>
    aTransfer({ token: COIN, from: ALICE, to: BOB, position, txHash: TX1, amount: 2_500_000n }),
  ),
});

beforeAll(async () => {
  world = await apiWorld();
  owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  ({ apiKey, names } = await writeSmallChain(world));
  await writeObserved(world);
  const blocks = Array.from({ length: TOP - FIRST + 1 }, (_, i) => blockAt(FIRST + i));
  await writeBlocks(owner, blocks, { seq: 1, offset: 100 }, names);
  const { token: session } = await world.makeUser('caller', 'caller@example.org', { isAdmin: true });
  client = new TokenDataClient({
    baseUrl: world.url,
    apiKey,
    session,
    retry: { attempts: 1 },
    fetch: async (input, init) => {
      const request = new Request(input, init);
      requested.push(request);
      return await fetch(request);
    },
  });
});
afterAll(async () => {
  await owner?.close();
  await world?.close();
});

const documented = documentOf(
  z.object({
    operationId: z.string(),
    security: z.array(z.record(z.string(), z.unknown())),
    responses: z.record(z.string(), z.unknown()),
  }),
);

test('the document that the service sends is the one that the client is generated from', async () => {
  const { text } = await world.call('GET', '/api/openapi.json');
  const { sha256 } = JSON.parse(readFileSync('client/document.json', 'utf8')) as { sha256: string };
  const message = 'the routes have changed: run `npm run generate -w client`';
  expect(createHash('sha256').update(text).digest('hex'), message).toBe(sha256);
});

test('every operation of the document is called by its method, with its credentials, and answers as documented', async () => {
  const { json } = await world.call('GET', '/api/openapi.json');
  const { paths } = documented.parse(json);
  const methods = client as unknown as Record<string, (options: unknown) => Promise<unknown>>;
  // The session ends with its log-out.
  const operations = operationsOf(json).toSorted(
    (one, other) => Number(one.path.endsWith('/logout/')) - Number(other.path.endsWith('/logout/')),
  );
  expect(operations.length).toBeGreaterThan(60);
  for (const described of operations) {
    const { method, path, parameters } = described;
    const operation = paths[path]?.[method.toLowerCase()];
    const id = operation?.operationId ?? '';
    const given = parameters.filter((one) => one.in === 'path' || isGiven(described, one));
    const valuesIn = (place: string) =>
      Object.fromEntries(
        given.filter((one) => one.in === place).map(({ name }) => [name, valueOf(path, name)]),
      );
    const body = method === 'GET' || method === 'DELETE' ? {} : { body: {} };
    const options = { path: valuesIn('path'), query: valuesIn('query'), parseAs: 'text', ...body };
    requested.length = 0;
    const status = await methods[id]?.(options).then(
      () => 200,
      (error: unknown) => (error instanceof ApiError ? error.status : String(error)),
    );
    const sent = path.replace(/\{(\w+)\}/g, (_, name: string) => String(options.path[name]));
    const [request] = requested;
    const called = `${request?.method} ${decodeURIComponent(new URL(request?.url ?? '').pathname)}`;
    expect([requested.length, called], id).toEqual([1, `${method} ${sent}`]);
    const schemes = operation?.security.flatMap((one) => Object.keys(one)) ?? [];
    const credentials = [request?.headers.has('api-key'), request?.headers.has('authorization')];
    expect(credentials, id).toEqual([schemes.includes('ApiKey'), schemes.includes('Bearer')]);
    const known = Object.keys(operation?.responses ?? {});
    expect(status === 200 || known.includes(String(status)), `${id}: ${status}`).toBe(true);
    expect([401, 500, 503], id).not.toContain(path.endsWith('/login/') ? 200 : status);
    if (method === 'GET') expect([200, 400, 403, 404, 409], id).toContain(status);
  }
});

test('an encrypted blob is written and read with the signed headers', async () => {
  const [lookupHash, authKey] = [randomBytes(32).toString('hex'), randomBytes(32).toString('hex')];
  const path = { lookup_hash: lookupHash };
  const blob = 'sealed é';
  await client.writeSync({
    path,
    headers: await syncHeaders(authKey, lookupHash, blob),
    body: { blob, version: 1, auth_key: authKey },
  });
  const read = await client.readSync({ path, headers: await syncHeaders(authKey, lookupHash, null) });
  expect(read).toMatchObject({ blob, version: 1 });
  const headers = await syncHeaders('00', lookupHash, null);
  await expect(client.readSync({ path, headers })).rejects.toMatchObject({ status: 403 });
});

test('all transfers of an account are iterated, with amounts as integers', async () => {
  const rows: Transfer[] = [];
  for await (const row of client.transfers.iterate({ account: BOB, from_block: FIRST, limit: 7 }))
    rows.push(row);
  const page = await client.listTransfers({ query: { account: BOB, from_block: FIRST, limit: 100 } });
  expect(rows).toHaveLength(40);
  expect(rows).toEqual(page.results.map(withAmounts));
  expect(rows[0]?.amount).toBe(2_500_000n);
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

const nameOf = ({ type, data }: StreamMessage): string =>
  type === 'transfer' ? `transfer ${data.block} ${data.event_index} ${data.amount}` : type;

test('the stream goes on after its connection was cut', async () => {
  let connections = 0;
  const cutting = new TokenDataClient({
    baseUrl: world.url,
    apiKey,
    fetch: async (input, init) => {
      const answer = await fetch(input, init);
      connections += 1;
      return connections < 4 ? cutAfter(answer, 6000) : answer;
    },
  });
  const transfers: string[] = [];
  for await (const message of cutting.stream({ token: COIN, from: FIRST })) {
    if (message.type === 'transfer') transfers.push(nameOf(message));
    if (message.type === 'block' && message.data.height === TOP) break;
  }
  const listed: string[] = [];
  for await (const { block, event_index: index, amount } of client.transfers.iterate({
    token: COIN,
    from_block: FIRST,
    order: 'asc',
  }))
    listed.push(`transfer ${block} ${index} ${amount}`);
  expect(transfers).toEqual(listed);
  expect(connections).toBe(4);
});

/** Runs an example with the service's address and key. */
function startExample(name: string, args: readonly string[], env: Record<string, string> = {}) {
  const file = fileURLToPath(new URL(`../../../client/examples/${name}`, import.meta.url));
  const child = spawn(process.execPath, ['--conditions=source', file, ...args], {
    env: { PATH: process.env['PATH'] ?? '', TDS_URL: world.url, TDS_KEY: apiKey, ...env },
  });
  let printed = '';
  for (const output of [child.stdout, child.stderr])
    output.on('data', (text: Buffer) => (printed += text.toString()));
  const ended = once(child, 'close');
  return {
    printed: () => printed,
    ended,
    stop: async () => {
      child.kill();
      await ended;
    },
  };
}

test('the examples of the profit and loss and of DuckDB print what they found', async () => {
  // 40 transfers of 2.5 tokens at a dollar each, which are worth a dollar and a half now.
  const points = (await servedBuilds(world.pool)).table('price_points');
  const hour = Math.floor(1_700_000_000 / 3600);
  await owner.command(
    `INSERT INTO ${points} VALUES (unhex('${COIN.slice(2)}'), ${hour}, 1700000000000, toUInt256('1${'0'.repeat(41)}'), '1', 'test', 1, 0)`,
  );
  await writeBalance(world, { account: BOB, token: COIN, balance: '100000000', block: TOP });
  const firstPaid = blockAt(FIRST).timestamp * 1000;
  const [pnl, ofFirstBlock, duckdb] = [
    startExample('pnl.ts', [BOB, '2023-11-14T00:00:00Z']),
    startExample('pnl.ts', [BOB, new Date(firstPaid).toISOString()]),
    startExample('duckdb.ts', [COIN]),
  ];
  await Promise.all([pnl.ended, ofFirstBlock.ended, duckdb.ended]);
  const { data: holdings } = await client.getPortfolio({ query: { account_address: BOB } });
  const value = holdings.total_usd;
  expect(value).toBe(150);
  // Before the first block that pays the account it had nothing of value: that block may be the start too.
  for (const { printed } of [pnl, ofFirstBlock])
    expect(printed().split('\n').slice(0, 2)).toEqual([
      'value 0.00 → 150.00 USD, in and out 100.00 USD',
      'profit and loss 50.00 USD',
    ]);
  expect(duckdb.printed()).toContain(`{"to_address":"${BOB}","transfers":"41","received":100}\n`);
});

test('the whale alert prints large transfers as they are indexed', async () => {
  const [alert, deaf] = [
    startExample('whale-alert.ts', [COIN, '2.5']),
    startExample('whale-alert.ts', [COIN, '2.6']),
  ];
  try {
    for (let height = TOP + 1; alert.printed() === '' && height < TOP + 60; height += 1) {
      await writeBlocks(owner, [blockAt(height)], { seq: 1, offset: 100 + height }, names);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
    expect(alert.printed()).toMatch(new RegExp(`^block \\d+: 2.5 .* from ${ALICE} to ${BOB}\n`));
    expect(deaf.printed()).toBe('');
  } finally {
    await Promise.all([alert.stop(), deaf.stop()]);
  }
});

test('the webhook receiver accepts a signed delivery, prints it once, and refuses any other', async () => {
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  const receiver = startExample('webhook-receiver.ts', ['0'], { WEBHOOK_SECRET: secret });
  try {
    await expect.poll(receiver.printed).toMatch(/^listening on \d+\n/);
    const url = `http://127.0.0.1:${/\d+/.exec(receiver.printed())?.[0]}/`;
    const body = JSON.stringify({
      event: 'ping',
      created_at: '2027-01-15T08:00:00Z',
      data: { message: 'é' },
    });
    const timestampSeconds = Math.floor(Date.now() / 1000);
    const headers = signatureHeaders({
      body,
      secret,
      deliveryId: 'd1',
      event: 'ping',
      attempt: 1,
      timestampSeconds,
    });
    const deliver = async (sent: string) =>
      (await fetch(url, { method: 'POST', body: sent, headers })).status;
    expect([await deliver(body), await deliver(body), await deliver(`${body} `)]).toEqual([204, 204, 400]);
    expect(receiver.printed().split('\n').slice(1)).toEqual(['ping {"message":"é"}', '']);
  } finally {
    await receiver.stop();
  }
});
