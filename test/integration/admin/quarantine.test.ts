import { afterAll, beforeAll, expect, test } from 'vitest';

import type { Publisher } from '../../../infra/kafka/client.ts';
import { selectors } from '../../../schemas/decode/layouts.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { QuarantineMessage } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import { adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';
import { ART, COIN } from '../../support/chain-messages.ts';
import { atEnd, until } from '../../support/projection-world.ts';

/** What admins see of the quarantine, with events and messages that the test has quarantined. */

let world: AdminWorld;
let publisher: Publisher;

/** Unix milliseconds: 2023-11-14T22:13:20Z. */
const SINCE = 1_700_000_000_000;
const BLOCK_HASH = toFelt(0xb10cn);
const event = (position: number, block: number, contract = COIN, at = SINCE): QuarantineMessage => ({
  type: 'event.quarantined',
  v: 1,
  id: `${BLOCK_HASH}:${position}`,
  reason: 'no layout of Transfer has 3 keys and 4 data felts',
  block,
  block_hash: BLOCK_HASH,
  position,
  transaction_hash: toFelt(0x7n),
  event: {
    from_address: contract,
    keys: [selectors.Transfer, toFelt(1n), toFelt(2n)],
    data: [toFelt(5n), toFelt(0n), toFelt(0n), toFelt(0n)],
  },
  quarantined_at: at,
});

beforeAll(async () => {
  world = await adminWorld();
  publisher = world.api.kafka.publisher();
  await publish([
    event(1, 76),
    event(2, 77, ART, SINCE + 1000),
    // Two of one time: the id decides their order.
    event(4, 78, COIN, SINCE + 2000),
    event(3, 78, COIN, SINCE + 2000),
    {
      type: 'message.quarantined',
      v: 1,
      id: 'prices:0:7',
      reason: 'not JSON',
      topic: 'prices',
      partition: 0,
      offset: '7',
      value: Buffer.from('{"half').toString('base64'),
      quarantined_at: SINCE + 3000,
    },
    {
      type: 'quarantine.resolved',
      v: 1,
      id: `${BLOCK_HASH}:1`,
      resolution: 'repaired',
      resolved_at: SINCE + 9000,
    },
  ]);
});
afterAll(async () => {
  await publisher?.close();
  await world?.close();
});

async function publish(messages: readonly QuarantineMessage[]): Promise<void> {
  await publisher.publish(
    topics.quarantine,
    messages.map((value) => ({ key: value.id, value })),
  );
  await until(async () => await atEnd(world.api.kafka, world.api.pool, topics.quarantine, ['quarantine']));
}

const list = async (query = '') => {
  const { status, json } = await world.get(`/api/admin/quarantine/${query}`);
  expect(status, JSON.stringify(json)).toBe(200);
  return json as {
    count: number;
    links: { next: string | null; next_cursor: string | null };
    results: { id: string; state: string }[];
  };
};
const ids = async (query = ''): Promise<string[]> =>
  (await list(query)).results.map(({ id }) => id.replace(`${BLOCK_HASH}:`, ''));

/** The ids of all pages from this one on, and their counts. */
const pages = async (first: string): Promise<{ seen: string[]; counts: number[] }> => {
  const seen: string[] = [];
  const counts = new Set<number>();
  for (let query: string | null = first; query !== null && seen.length < 10;) {
    const page: Awaited<ReturnType<typeof list>> = await list(query);
    seen.push(...page.results.map(({ id }) => id.replace(`${BLOCK_HASH}:`, '')));
    counts.add(page.count);
    query = page.links.next;
  }
  return { seen, counts: [...counts] };
};

test('open entries are listed newest first, and resolved ones on request', async () => {
  expect(await ids()).toEqual(['prices:0:7', '3', '4', '2']);
  expect((await list()).count).toBe(4);
  expect(await ids('?all=true')).toEqual(['prices:0:7', '3', '4', '2', '1']);
  const { results } = await list('?kind=message');
  expect(results).toEqual([
    {
      id: 'prices:0:7',
      kind: 'message',
      where: 'prices, partition 0, offset 7',
      reason: 'not JSON',
      since: '2023-11-14T22:13:23.000Z',
      last_tried: null,
      state: 'open',
      halts: [],
      rebuilds: [],
    },
  ]);
});

test('filters narrow the list and its count', async () => {
  expect(await ids('?kind=event')).toEqual(['3', '4', '2']);
  expect(await ids(`?contract=${COIN}`)).toEqual(['3', '4']);
  expect(await ids('?block=77')).toEqual(['2']);
  expect(await ids(`?contract=${COIN}&all=1&block=76`)).toEqual(['1']);
  expect((await list('?block=77')).count).toBe(1);
  const unstorable = Buffer.from('[1,"\\u0000"]').toString('base64url');
  for (const wrong of [
    '?kind=x',
    '?contract=x',
    '?block=-1',
    '?cursor=x',
    '?cursor=e30',
    `?cursor=${unstorable}`,
  ])
    expect((await world.get(`/api/admin/quarantine/${wrong}`)).status, wrong).toBe(400);
});

test('the cursor reaches every entry once, also those of one time', async () => {
  expect(await pages('?limit=1&all=true')).toEqual({ seen: ['prices:0:7', '3', '4', '2', '1'], counts: [5] });
});

test('an event is shown raw, as each standard reads it, and beside the shapes that were expected', async () => {
  await world.api.pool.query(
    `INSERT INTO tds.contract_standards (contract, standard, class_hash, basis, block) VALUES ($1, 'erc20', $2, 'abi', 1)`,
    [ART, toFelt(0xc1n)],
  );
  await world.api.pool.query("INSERT INTO tds.repairs (height, reason) VALUES (77, 'quarantine')");
  const { status, json } = await world.get(`/api/admin/quarantine/${BLOCK_HASH}:2/`);
  expect(status).toBe(200);
  expect(json).toMatchObject({
    id: `${BLOCK_HASH}:2`,
    kind: 'event',
    state: 'open',
    resolved_at: null,
    message: null,
    event: {
      block: 77,
      block_hash: BLOCK_HASH,
      position: 2,
      contract: { address: ART, standard: 'erc20', class_hash: toFelt(0xc1n), basis: 'abi' },
      raw: { from_address: ART, keys: [selectors.Transfer, toFelt(1n), toFelt(2n)] },
      selectors: ['Transfer'],
      pending_repair: { attempts: 0 },
    },
  });
  // SNIP-2 and OpenZeppelin: from and to as keys, the amount as two halves.
  expect(json.event.expected).toContainEqual({
    event: 'Transfer',
    keys: 3,
    data: 2,
    from: 'keys[1]',
    to: 'keys[2]',
  });
  expect(new Set(json.event.expected.map((one: { event: string }) => one.event))).toEqual(
    new Set(['Transfer']),
  );
  expect(json.event.readings).toContainEqual({
    standard: 'erc20',
    problem: 'no layout of Transfer has 3 keys and 4 data felts',
    transfers: [],
  });
  expect((await world.get(`/api/admin/quarantine/${BLOCK_HASH}:1/`)).json).toMatchObject({
    state: 'repaired',
    resolved_at: '2023-11-14T22:13:29.000Z',
  });
});

test('an event that a standard can read is shown with its transfers', async () => {
  const readable = event(9, 79);
  if (readable.type !== 'event.quarantined') throw new Error('not an event');
  await publish([{ ...readable, event: { ...readable.event, data: [toFelt(5n), toFelt(0n)] } }]);
  const { json } = await world.get(`/api/admin/quarantine/${BLOCK_HASH}:9/`);
  expect(json.event.readings).toContainEqual({
    standard: 'erc721',
    problem: null,
    transfers: [{ from: toFelt(1n), to: toFelt(2n), amount: '1', token_id: '5' }],
  });
});

test('a message is shown with its text, and one that halts a projection is listed without an entry', async () => {
  expect((await world.get('/api/admin/quarantine/prices:0:7/')).json).toMatchObject({
    kind: 'message',
    event: null,
    message: { topic: 'prices', partition: 0, offset: 7, text: '{"half' },
  });
  await world.api.pool.query(
    `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
     VALUES ('tokens', 1, 'tokens', 2, 11, 'not JSON')`,
  );
  expect((await ids())[0]).toBe('tokens:2:11');
  const { json } = await world.get('/api/admin/quarantine/tokens:2:11/');
  expect(json).toMatchObject({ state: 'open', halts: ['tokens'], reason: 'not JSON' });
  const missing = await world.get('/api/admin/quarantine/tokens:2:12/');
  expect(missing.status).toBe(404);
  expect(missing.json.detail).toContain('tds quarantine list');
});

test('a message that halts a projection is listed once, also where its entry is on a later page', async () => {
  await world.api.pool.query('DELETE FROM tds.projection_halts');
  await publish([
    {
      type: 'message.quarantined',
      v: 1,
      id: 'prices:0:3',
      reason: 'not JSON',
      topic: 'prices',
      partition: 0,
      offset: '3',
      value: '',
      quarantined_at: SINCE - 1000,
    },
  ]);
  await world.api.pool.query(
    `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
     VALUES ('latest-prices', 1, 'prices', 0, 3, 'not JSON')`,
  );
  const whole = await ids();
  expect(whole.at(-1)).toBe('prices:0:3');
  expect(await pages('?limit=1')).toEqual({ seen: whole, counts: [whole.length] });
});

test('a message without an entry counts on every page', async () => {
  await world.api.pool.query(
    `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
     VALUES ('tokens', 1, 'tokens', 2, 12, 'not JSON')`,
  );
  const whole = await ids();
  expect(whole[0]).toBe('tokens:2:12');
  expect(await pages('?limit=1')).toEqual({ seen: whole, counts: [whole.length] });
});
