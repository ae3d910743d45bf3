import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';

import { createLogger } from '../../../infra/log.ts';
import { createCommitmentStore } from '../../../pipeline/ingest/store/commitments.ts';
import { accountLedger } from '../../../projections/account-ledger/projector.ts';
import { checkConservation, startConservation } from '../../../projections/engine/verify/conservation.ts';
import type { PublicVerificationAnswer } from '../../../schemas/api/verification.ts';
import { selectors } from '../../../schemas/decode/layouts.ts';
import { STRK_TOKEN, toFelt } from '../../../schemas/felt.ts';
import type { EventCheck } from '../../../schemas/messages/chain-blocks.ts';
import type { QuarantineMessage } from '../../../schemas/messages/quarantine.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';
import { ART, COIN, accepted, busyBlock, reverted } from '../../support/chain-messages.ts';
import { atEnd, until } from '../../support/projection-world.ts';
import { eventually } from '../../support/service.ts';
import { tds } from '../../support/tds.ts';

/** What anyone is shown of verifications, while blocks are checked, verified, rebuilt, quarantined and damaged. */

let world: AdminWorld;
const CHECKS: readonly (EventCheck | null)[] = [
  'verified',
  'verified',
  'mismatched',
  'old_version',
  'no_commitment',
  null,
  null,
  'old_version',
];
const TRANSACTIONS = 3;
const LEDGER = `account_ledger_v${accountLedger.version}_b1`;

const block = (height: number, check: EventCheck | null, fork = 0) => ({
  ...busyBlock(height, TRANSACTIONS, fork),
  ...(check === null ? {} : { event_check: check }),
});

beforeAll(async () => {
  world = await adminWorld();
  await world.startProjections();
});
afterAll(() => world?.close());

async function publish(messages: readonly ReturnType<typeof accepted | typeof reverted>[]): Promise<void> {
  const publisher = world.api.kafka.publisher();
  await publisher.publish(
    topics.chainBlocks,
    messages.map((value) => ({ value, partition: partitionOfHeight(value.block.height) })),
  );
  await publisher.close();
  await world.projected();
}

const ask = async (headers: Record<string, string> = {}): Promise<PublicVerificationAnswer> => {
  const { status, json } = await world.api.call('GET', '/api/verification/', { headers });
  expect(status).toBe(200);
  return json as PublicVerificationAnswer;
};

/** An answer may be ten seconds old, and sixty may be asked for a minute. */
const soon = async (look: () => Promise<void>): Promise<void> => await eventually(look, 30_000, 3000);

const sumLegs = async (): Promise<void> =>
  await checkConservation(
    { pool: world.api.pool, clickhouse: world.owner, signal: new AbortController().signal },
    0,
  );

test('answers without credentials and before the first block, and may be cached ten seconds', async () => {
  const { status, json, headers } = await world.api.call('GET', '/api/verification/');
  expect(status).toBe(200);
  expect(json).toEqual({
    heights: {
      first: null,
      last: null,
      verified: 0,
      unverifiable: 0,
      reasons: { old_version: 0, no_commitment: 0, mismatched: 0, not_checked: 0 },
    },
    commitments: [],
    conservation: { tokens: 0, nonzero: [], at: null, to: null },
    prices: { tokens: 0, refused: [], from: null, to: null },
    last_verify: null,
    last_rebuild: null,
    quarantined: { events: 0, contracts: 0 },
    updated_at: expect.any(String),
  });
  expect(headers.get('cache-control')).toBe('public, max-age=10');
  expect(headers.get('vary')).toBe('X-Min-Block');
  const { updated_at: at } = await ask();
  expect(at).toBe(json.updated_at);
});

describe('with blocks of every outcome', () => {
  test('waits up to two seconds for the block that a client has seen', async () => {
    const first = async () =>
      await world.api.call('GET', '/api/verification/', { headers: { 'X-Min-Block': '0' } });
    const began = performance.now();
    const { status, json, headers } = await first();
    expect([status, json.code, headers.get('retry-after')]).toEqual([503, 'behind', '1']);
    expect(performance.now() - began).toBeGreaterThan(1900);
    // What is kept for clients that have seen no block is not the answer.
    expect((await ask()).heights.last).toBe(null);
    const asked = performance.now();
    const answering = first();
    await publish(CHECKS.map((check, height) => accepted(block(height, check), height + 1)));
    const isInTime = performance.now() - asked < 1800;
    const answer = await answering;
    if (isInTime) expect([answer.status, answer.json.heights?.first]).toEqual([200, 0]);
  });

  test('counts them by outcome, and reads them at once for a client that has seen the newest', async () => {
    const { heights } = await ask({ 'X-Min-Block': String(CHECKS.length - 1) });
    expect(heights).toEqual({
      first: 0,
      last: CHECKS.length - 1,
      verified: 2,
      unverifiable: 6,
      reasons: { old_version: 2, no_commitment: 1, mismatched: 1, not_checked: 2 },
    });
  });

  test('a block shows its own outcome', async () => {
    const shown = async (height: number): Promise<string> =>
      (
        await world.api.call('GET', `/api/blocks/${height}/`, {
          token: world.admin,
          headers: { 'api-key': 'session' },
        })
      ).json.event_check;
    expect(await Promise.all([0, 2, 3, 4, 5].map(shown))).toEqual([
      'verified',
      'mismatched',
      'old_version',
      'no_commitment',
      'not_checked',
    ]);
  });

  test('a reorg replaces the outcomes of its blocks', async () => {
    await publish([
      reverted(block(7, 'old_version'), 20),
      reverted(block(6, null), 21),
      accepted(block(6, 'verified', 1), 22),
    ]);
    await soon(async () =>
      expect((await ask()).heights).toEqual({
        first: 0,
        last: 6,
        verified: 3,
        unverifiable: 4,
        reasons: { old_version: 1, no_commitment: 1, mismatched: 1, not_checked: 1 },
      }),
    );
  });
});

test('shows what the ingester counted of each commitment, and leaves out what it only knows to hold', async () => {
  const store = createCommitmentStore(world.api.pool);
  const count = {
    commitment: 'receipts',
    version: '0.14.1',
    outcome: 'verified',
    blocks: 3,
    from: 1,
    to: 5,
  } as const;
  await store.add([count, { ...count, outcome: 'refused', blocks: 1, from: 4, to: 4 }]);
  await store.add([{ ...count, commitment: 'events', blocks: 0 }]);
  await soon(async () => {
    const { commitments } = await ask();
    expect(commitments).toEqual(
      [
        { outcome: 'refused', blocks: 1, from: 4, to: 4 },
        { outcome: 'verified', blocks: 3, from: 1, to: 5 },
      ].map((one) => ({
        commitment: 'receipts',
        starknet_version: '0.14.1',
        ...one,
        at: expect.any(String),
      })),
    );
  });
});

test('shows which last readings of prices were refused', async () => {
  await world.api.pool.query(
    `INSERT INTO tds.price_watch (token, common, read_at, refusal) VALUES
       ('a', true, 1700000000000, NULL), ('b', true, 1700000005000, 'jump'), ('c', true, 1700000001000, 'jump'),
       ('d', true, NULL, NULL)`,
  );
  await soon(async () =>
    expect((await ask()).prices).toEqual({
      tokens: 3,
      refused: [{ reason: 'jump', tokens: 2 }],
      from: '2023-11-14T22:13:20.000Z',
      to: '2023-11-14T22:13:25.000Z',
    }),
  );
});

test('the balance changes of the ERC-20 tokens sum to zero', async () => {
  const summing = startConservation({
    pool: world.api.pool,
    clickhouse: world.owner,
    log: createLogger('test', 'silent'),
  });
  try {
    await soon(async () =>
      expect((await ask()).conservation).toEqual({
        tokens: 2,
        nonzero: [],
        at: expect.any(String),
        to: 6,
      }),
    );
  } finally {
    await summing.stop();
  }
});

test('shows the last verification of the most heights and the last rebuild', async () => {
  await world.api.pool.query(
    `INSERT INTO tds.chunks (name, range_start, cursor, final_height, holder, lease_until)
     VALUES ('live', 0, 7, -1, 'writer', now() + interval '1 hour')`,
  );
  const verified = await tds(world.api.env, 'verify', '--from', '1', '--to', '5');
  expect(verified.code, verified.stderr).toBe(0);
  const smaller = await tds(world.api.env, 'verify', '--from', '2', '--to', '3');
  expect(smaller.code, smaller.stderr).toBe(0);
  const rebuilt = await tds(world.api.env, 'rebuild', 'tx-index');
  expect(rebuilt.code, rebuilt.stderr).toBe(0);
  await soon(async () => {
    const { last_verify: verify, last_rebuild: rebuild } = await ask();
    expect(verify).toEqual({ at: expect.any(String), from: 1, to: 5, differences: 0 });
    expect(rebuild).toEqual({
      projection: 'tx-index',
      at: expect.any(String),
      rows: 7 * TRANSACTIONS,
      differences: 0,
    });
  });
});

test('shows a later verification that left differences', async () => {
  await world.api.pool.query(
    `INSERT INTO tds.verify_runs (started_at, outcome, from_height, to_height, differences)
     VALUES (now(), 'differences', 2, 2, 3), (now(), 'no differences', 3, 3, 0)`,
  );
  await soon(async () => expect((await ask()).last_verify).toMatchObject({ from: 2, to: 2, differences: 3 }));
});

test('counts the open events of the quarantine and their contracts', async () => {
  const event = (position: number, contract = COIN): QuarantineMessage => ({
    type: 'event.quarantined',
    v: 1,
    id: `${toFelt(0xb10cn)}:${position}`,
    reason: 'no layout of Transfer has 3 keys and 4 data felts',
    block: 3,
    block_hash: toFelt(0xb10cn),
    position,
    transaction_hash: toFelt(7n),
    event: { from_address: contract, keys: [selectors.Transfer], data: [] },
    quarantined_at: 1_700_000_000_000,
  });
  const resolved: QuarantineMessage = {
    type: 'quarantine.resolved',
    v: 1,
    id: `${toFelt(0xb10cn)}:4`,
    resolution: 'repaired',
    resolved_at: 1_700_000_001_000,
  };
  const publisher = world.api.kafka.publisher();
  const messages = [event(1), event(2), event(3, ART), event(4, STRK_TOKEN), resolved];
  await publisher.publish(
    topics.quarantine,
    messages.map((value) => ({ value })),
  );
  await publisher.close();
  await until(async () => await atEnd(world.api.kafka, world.api.pool, topics.quarantine, ['quarantine']));
  await soon(async () => expect((await ask()).quarantined).toEqual({ events: 3, contracts: 2 }));
});

test('changes that arrive between two slices of both looks are no wrong sum', async () => {
  const column = { name: 'test', row: z.object({ legs: z.string() }) };
  const legs = async (): Promise<string> =>
    (await world.owner.rows({ ...column, sql: `SELECT toString(count()) AS legs FROM ${LEDGER}` }))[0]
      ?.legs ?? '';
  const before = await legs();
  let looks = 0;
  const growing = {
    rows: async (...args: Parameters<typeof world.owner.rows>) => {
      // The ledger is small: it would be read in one statement.
      if (args[0].name === 'account-ledger.size') return [{ legs: 64_000_000 }];
      const found = await world.owner.rows(...args);
      const { from } = (args[1] ?? {}) as { from?: string };
      // After the first accounts are read, a transfer from one of them to one of the last.
      if (from?.startsWith('0000') === true) {
        looks += 1;
        await world.owner.command(
          `INSERT INTO ${LEDGER} (account, token, block_desc, position_desc, item_desc, leg, delta, kind, seq)
           SELECT unhex(if(number = 0, '${'00'.repeat(31)}07', '07${'ff'.repeat(31)}')), unhex('${COIN.slice(2)}'), 0xffffffff - 1,
             0xffffffff - ${500 + looks}, 0, number + 1, if(number = 0, -${looks}, ${looks}), 'erc20', 1 FROM numbers(2)`,
        );
      }
      return found;
    },
  } as Pick<typeof world.owner, 'rows'>;
  const signal = new AbortController().signal;
  await checkConservation({ pool: world.api.pool, clickhouse: growing, signal }, 0);
  expect([looks, Number(await legs()) - Number(before)]).toEqual([2, 4]);
  const { rows } = await world.api.pool.query('SELECT nonzero FROM tds.conservation');
  expect(rows).toEqual([{ nonzero: [] }]);
});

test('a token whose balance changes do not sum to zero is named with the sum', async () => {
  const [lost] = await world.owner.rows({
    name: 'test',
    sql: `SELECT concat('0x', lower(hex(token))) AS token, toString(delta) AS delta, hex(account) AS account,
        block_desc, position_desc, item_desc FROM ${LEDGER} FINAL
      WHERE kind = 'erc20' AND leg = 2 AND block_desc = 0xffffffff - 2 LIMIT 1`,
    row: z.object({
      token: z.string(),
      delta: z.string(),
      account: z.string(),
      block_desc: z.int(),
      position_desc: z.int(),
      item_desc: z.int(),
    }),
  });
  if (lost === undefined) throw new Error('no leg');
  await world.owner.command(
    `DELETE FROM ${LEDGER} WHERE account = unhex('${lost.account}') AND leg = 2
       AND block_desc = ${lost.block_desc} AND position_desc = ${lost.position_desc} AND item_desc = ${lost.item_desc}`,
  );
  await sumLegs();
  await soon(async () =>
    expect((await ask()).conservation).toMatchObject({
      tokens: 2,
      nonzero: [{ token_address: lost.token, sum: String(-BigInt(lost.delta)) }],
    }),
  );
});

test('limits the calls from one address', async () => {
  const statuses: number[] = [];
  for (let call = 0; call < 61; call += 1)
    statuses.push((await world.api.call('GET', '/api/verification/')).status);
  expect(new Set(statuses)).toEqual(new Set([200, 429]));
});
