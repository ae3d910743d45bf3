import { describe, expect, test } from 'vitest';

import type { CommitmentStore } from '../../../../pipeline/ingest/commitments.ts';
import { parseBlockWithReceipts } from '../../../../pipeline/node/parse.ts';
import type { FetchedBlock } from '../../../../pipeline/node/types.ts';
import { eventCommitment } from '../../../../schemas/commitment/events.ts';
import { receiptCommitment } from '../../../../schemas/commitment/transactions.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';
import { busyBlock, madeUpHeader, makeBlock } from '../../../support/chain-messages.ts';
import {
  REFUSED,
  UNVERIFIABLE,
  checkedBlocks,
  checkedNode,
  knownStore,
} from '../../../support/checked-blocks.ts';
import type { CheckedOptions } from '../../../support/checked-blocks.ts';
import { withTrueHash } from '../../../support/true-chain.ts';
import { readRecordedBlock, whySkipped } from '../../../support/recorded-blocks.ts';

/** Of a block without transactions. */
const emptyHeader = {
  ...madeUpHeader,
  transaction_commitment: ZERO_FELT,
  event_commitment: ZERO_FELT,
  receipt_commitment: ZERO_FELT,
};

function fetched(height: number, isTrue: boolean, starknet_version = '0.14.1'): FetchedBlock {
  const made = { ...makeBlock({ height, transactions: [] }), starknet_version, header: emptyHeader };
  const body = isTrue ? withTrueHash(made, toFelt(9n)) : made;
  return { body, status: 'ACCEPTED_ON_L2', eventCommitment: null, bytes: 1 };
}

const outcomes = (blocks: readonly FetchedBlock[], options: CheckedOptions = {}) =>
  checkedBlocks(blocks, options, () => 'passed');

test('passes blocks of another hash until one of their version matches, and refuses them from then on', async () => {
  const store = knownStore();
  const blocks = [false, false, true, false, true].map((isTrue, height) => fetched(height, isTrue));
  // The second is beside one that matches.
  expect(await outcomes(blocks, { store })).toEqual(['passed', REFUSED, 'passed', REFUSED, 'passed']);
  expect(Object.fromEntries([...store.stored].filter(([key]) => key.startsWith('block_hash')))).toEqual({
    'block_hash 0.14.1 mismatched': 1,
    'block_hash 0.14.1 refused': 2,
    'block_hash 0.14.1 verified': 2,
  });
  // A process that starts later.
  expect(await outcomes([fetched(0, false), fetched(1, false)], { store })).toEqual([REFUSED, REFUSED]);
});

test('forgets a match of a block that is not published, or is reverted: it may be of another chain', async () => {
  const store = knownStore();
  let time = 0;
  const others = [fetched(1, false, '0.14.2'), fetched(2, false, '0.14.2'), fetched(3, false)];
  const blocks = [fetched(0, true), ...others, fetched(4, false), fetched(5, false, '0.13.1')];
  const node = await checkedNode(blocks, { store, now: () => time });
  const areRefused = async (): Promise<void> => {
    for (const height of [4, 5])
      await expect(node.getBlockWithReceipts(height)).rejects.toMatchObject({ code: 'BLOCK_MISMATCHED' });
  };
  const arePassed = async (): Promise<void> => {
    for (const height of [4, 5]) expect(await node.getBlockWithReceipts(height)).toBeDefined();
  };
  await node.getBlockWithReceipts(0);
  // It may be one of this chain, and about to be published.
  await areRefused();
  time += 600_000;
  await arePassed();
  expect([...store.stored.keys()].filter((key) => key.endsWith('verified'))).toEqual([]);
  const { body } = await node.getBlockWithReceipts(0);
  await node.published([body]);
  time += 600_000;
  await areRefused();
  await node.reverted(1);
  await areRefused();
  await node.reverted(0);
  await arePassed();
});

test('stores the counts of other versions beside one that no text column holds, and those that were not stored before', async () => {
  const known = knownStore();
  let isDown = true;
  const store: CommitmentStore = {
    ...known,
    async add(counts) {
      if (isDown) throw new Error('the store is down');
      await known.add(counts);
    },
  };
  const node = await checkedNode([fetched(0, false, '\u00000.14.1'), fetched(1, true)], {
    store,
    incomplete: 'accept',
  });
  const [other, first] = [await node.getBlockWithReceipts(0), await node.getBlockWithReceipts(1)];
  await node.published([other.body]);
  await expect(node.published([first.body])).rejects.toThrow('down');
  isDown = false;
  // It is published again.
  await node.published([first.body]);
  await node.flush();
  const hashes = [...known.stored].filter(([key]) => key.startsWith('block_hash'));
  expect(hashes).toEqual([
    ['block_hash other incomplete', 1],
    ['block_hash 0.14.1 verified', 1],
  ]);
});

test('refuses a block of a version of which none has matched unless the blocks beside it confirm it', async () => {
  const wrong = (height: number, version: string) => fetched(height, false, version);
  const right = (height: number, version = '0.14.1') => fetched(height, true, version);
  // No block beside it names the version, however close it looks.
  for (const version of ['0.99.0', 'v0.14.1', '0.14.2', '0.14.0', '0.14.01', '0.14.1 '])
    expect(await outcomes([right(0), wrong(1, version), right(2)])).toEqual(['passed', REFUSED, 'passed']);
  // Another block of the version matches.
  const store = knownStore(['block_hash 0.14.1']);
  expect(await outcomes([wrong(0, '0.15.0'), right(1, '0.15.0')], { store })).toEqual([REFUSED, 'passed']);
  // A version that hashes otherwise, before and after there is a next block.
  const changed = [right(0), wrong(1, '0.15.0')];
  expect(await outcomes(changed)).toEqual(['passed', REFUSED]);
  const longer = [...changed, wrong(2, '0.15.0'), wrong(3, '0.15.0')];
  expect(await outcomes(longer)).toEqual(['passed', 'passed', 'passed', 'passed']);
  const between = [right(0), wrong(1, '0.14.1.5'), right(2, '0.14.2')];
  expect(await outcomes(between)).toEqual(['passed', REFUSED, 'passed']);
});

test('an empty block says nothing about how its version commits to transactions', async () => {
  const details = () => [{ signature: [], messages: [], revertReason: null, l1Gas: 0, l1DataGas: 0 }];
  const block = (height: number): FetchedBlock => {
    const { body, ...rest } = fetched(height, false, '0.15.0');
    const { transactions } = busyBlock(height, 1);
    return { ...rest, body: { ...body, transactions, header: madeUpHeader }, details };
  };
  const empty = { ...fetched(1, false, '0.15.0'), details: () => [] };
  const store = () => knownStore(['transactions 0.14.1']);
  const options = { mode: 'all', incomplete: 'accept' } as const;
  expect(await outcomes([block(0), empty], { ...options, store: store() })).toEqual(['passed', 'passed']);
  // Alone it is refused.
  expect(await outcomes([block(0)], { ...options, store: store() })).toEqual([REFUSED]);
});

test('passes blocks of a version that hashes otherwise', async () => {
  const store = knownStore(['block_hash 0.13.1']);
  expect(await outcomes([fetched(0, false, '0.13.1')], { store })).toEqual(['passed']);
});

test('refuses a block that names a version from before the commitments above one that has them', async () => {
  const store = knownStore();
  const old = [
    fetched(0, false, '0.13.1'),
    fetched(1, true),
    fetched(2, false, '0.13.1'),
    fetched(3, false, ''),
  ];
  expect(await outcomes(old, { store })).toEqual(['passed', 'passed', REFUSED, REFUSED]);
  // A process that starts later.
  const later = await checkedNode([fetched(0, false, ''), fetched(1, false, '0.13.1')], { store });
  expect((await later.getBlockWithReceipts(0)).body.height).toBe(0);
  await expect(later.getBlockWithReceipts(1)).rejects.toThrow(
    'a block below it has a newer Starknet version',
  );
  expect(await outcomes([fetched(0, true), fetched(1, false, '0.13.1')], { mode: 'record' })).toEqual([
    'passed',
    'passed',
  ]);
});

test('passes a block whose signatures the node gives in another form', async () => {
  const details = () => {
    throw new AppError('NODE_ANSWER_INVALID', 'a signature is no list');
  };
  const { body, ...rest } = fetched(0, true);
  const block = { ...rest, body: { ...body, transactions: busyBlock(0, 1).transactions }, details };
  expect(await outcomes([block], { mode: 'all', incomplete: 'accept' })).toEqual(['passed']);
});

test('refuses a block that lacks a part of its header once another block is known to match, unless it is accepted', async () => {
  const { body, ...rest } = fetched(0, false);
  const { header: _, ...bare } = body;
  const unknown = { ...body, header: { ...emptyHeader, state_diff_commitment: ZERO_FELT } };
  const uncounted = { ...body, event_count: null };
  const blocks = [bare, unknown, uncounted].map((one) => ({ ...rest, body: one }));
  const passed = ['passed', 'passed', 'passed'];
  expect(await outcomes(blocks)).toEqual(passed);
  const known = knownStore(['block_hash 0.14.1']);
  // Any block can name a version that none has seen.
  for (const store of [known, knownStore(['block_hash 0.14.0'])])
    expect(await outcomes(blocks, { store })).toEqual([UNVERIFIABLE, UNVERIFIABLE, UNVERIFIABLE]);
  expect(await outcomes(blocks, { store: known, incomplete: 'accept' })).toEqual(passed);
  expect(await outcomes(blocks, { store: known, mode: 'record' })).toEqual(passed);
});

test('asks for the blocks beside a few incomplete ones only: a node may give no whole block', async () => {
  const incomplete = Array.from({ length: 40 }, (_, height): FetchedBlock => {
    const { body, ...rest } = fetched(height, false);
    const { header: _header, ...bare } = body;
    return { ...rest, body: bare };
  });
  let asked = 0;
  const counted = new Proxy(incomplete, {
    get(blocks, height, receiver) {
      if (typeof height === 'string' && /^[0-9]+$/.test(height)) asked += 1;
      return Reflect.get(blocks, height, receiver);
    },
  });
  expect(new Set(await outcomes(counted))).toEqual(new Set(['passed']));
  // Two beside each of eight, but for the first, which has one.
  expect(asked).toBeLessThan(40 + 2 * 8);
});

test('record and off refuse none, and off learns nothing', async () => {
  const blocks = [fetched(0, true), fetched(1, false)];
  const store = knownStore();
  expect(await outcomes(blocks, { mode: 'off', store })).toEqual(['passed', 'passed']);
  expect(store.stored.size).toBe(0);
  expect(await outcomes(blocks, { mode: 'record', store })).toEqual(['passed', 'passed']);
});

test('reads the verified versions once in sixteen checks', async () => {
  const store = knownStore();
  await outcomes(
    Array.from({ length: 33 }, (_, height) => fetched(height, false)),
    { store },
  );
  // Two for each block: whether its hash is refused, and whether its other commitments are conclusive.
  expect(store.reads('block_hash')).toBe(Math.ceil((2 * 33) / 16));
});

test('counts a bounded number of versions each on their own, also after a restart', async () => {
  const store = knownStore();
  const versionsOf = (blocks: number, isTrue: boolean, digit: number): FetchedBlock[] =>
    Array.from({ length: blocks }, (_, height) => fetched(height, isTrue, `1.${digit}.${height}`));
  for (const digit of [0, 1]) await outcomes(versionsOf(300, false, digit), { store });
  await outcomes([fetched(0, false, `9.${'9'.repeat(40)}`)], { store });
  expect((await store.versions()).length).toBe(101);
  expect(store.stored.get('block_hash other mismatched')).toBe(500);
  expect(store.stored.get('block_hash other incomplete')).toBe(1);
  // What was verified has room of its own.
  expect(await outcomes([fetched(0, true, '2.0.0'), fetched(1, false, '2.0.0')], { store })).toEqual([
    'passed',
    REFUSED,
  ]);
  for (const digit of [3, 4]) await outcomes(versionsOf(300, true, digit), { store });
  // With `other`, which a process that starts later takes for one of them.
  expect((await store.versions()).length).toBe(500);
});

describe.skipIf(whySkipped !== '')(`${whySkipped}the recorded block`, () => {
  type Recorded = ReturnType<typeof readRecordedBlock>;
  type Change = (block: Recorded) => unknown;
  const changed = (change: Change): FetchedBlock => {
    const block = readRecordedBlock();
    change(block);
    return parseBlockWithReceipts(block, 1);
  };
  const given = (): FetchedBlock => changed(() => undefined);
  const signed = (block: Recorded) => block.transactions[1].transaction;
  const receiptOf = (block: Recorded) => block.transactions[1].receipt;
  const kinds = ['block_hash', 'transactions', 'receipts', 'events'] as const;

  test('is verified in all it commits to', async () => {
    const store = knownStore();
    expect(await outcomes([given()], { store })).toEqual(['passed']);
    expect([...store.stored]).toEqual(kinds.map((kind) => [`${kind} 0.14.1 verified`, 1]));
  });

  test.each<[string, Change]>([
    ['another state root', (block) => (block.new_root = '0x0')],
    ['another felt of a signature', (block) => (signed(block).signature[0] = '0x1')],
    ['a shorter signature', (block) => signed(block).signature.pop()],
    ['another fee', (block) => (receiptOf(block).actual_fee.amount = '0x1')],
    ['more L1 gas', (block) => (receiptOf(block).execution_resources.l1_gas = 1)],
    ['more L1 data gas', (block) => (receiptOf(block).execution_resources.l1_data_gas += 1)],
    [
      'a revert reason',
      (block) => Object.assign(receiptOf(block), { execution_status: 'REVERTED', revert_reason: 'none' }),
    ],
    [
      'a message',
      (block) => receiptOf(block).messages_sent.push({ from_address: '0x1', to_address: '0x2', payload: [] }),
    ],
    ['transactions in another order', (block) => block.transactions.reverse()],
  ])('is refused with %s once it has matched, and passes when the node answers truly', async (_, change) => {
    expect(await outcomes([given(), changed(change), given()])).toEqual(['passed', REFUSED, 'passed']);
  });

  test.each<[string, Change]>([
    ['a signature', (block) => delete signed(block).signature],
    ['messages', (block) => delete receiptOf(block).messages_sent],
    ['gas', (block) => delete receiptOf(block).execution_resources],
    ['the gas of specification 0.8', (block) => (receiptOf(block).execution_resources = { steps: 5 })],
    ['a state diff commitment', (block) => (block.state_diff_commitment = '0x0')],
    ['prices of L2 gas', (block) => delete block.l2_gas_price],
  ])('without %s, passes before one has matched, and is refused then unless accepted', async (_, change) => {
    const store = knownStore();
    expect(await outcomes([changed(change)], { store })).toEqual(['passed']);
    expect([...store.stored.keys()].filter((key) => key.endsWith('incomplete'))).toHaveLength(1);
    expect(await outcomes([given(), changed(change)], { store })).toEqual(['passed', UNVERIFIABLE]);
    expect(await outcomes([changed(change)], { store, incomplete: 'accept' })).toEqual(['passed']);
  });

  /** With an event, a fee and commitments to them that are made up, below the hash of the true block. */
  const forged: Change = (block) => {
    receiptOf(block).events[0].data[2] = '0xffffffff';
    receiptOf(block).actual_fee.amount = '0x1';
    const { body, details } = parseBlockWithReceipts(block, 1);
    block.event_commitment = eventCommitment(body.transactions);
    block.receipt_commitment = receiptCommitment(body.transactions, details?.() ?? []);
  };

  test.each<[string, Change]>([
    ['without a state diff commitment', (block) => (block.state_diff_commitment = '0x0')],
    ['without prices of L2 gas', (block) => delete block.l2_gas_price],
    [
      'with a version whose letters are cut to those of ASCII',
      (block) => (block.starknet_version = 'İ.14.1'),
    ],
    ['with a version after a zero byte', (block) => (block.starknet_version = '\u00000.14.1')],
    ['with a version that is too long for a felt', (block) => (block.starknet_version += ' '.repeat(40))],
    [
      'of another version, without a state diff commitment',
      (block) => Object.assign(block, { starknet_version: '0.99.0', state_diff_commitment: '0x0' }),
    ],
  ])('is never verified when forged %s', async (_, change) => {
    const block = changed((one) => {
      forged(one);
      change(one);
    });
    const store = knownStore(kinds.map((kind) => `${kind} 0.14.1` as const));
    expect(await outcomes([block], { store })).toEqual([UNVERIFIABLE]);
    const [accepted] = await checkedBlocks([block], { store, incomplete: 'accept' }, (one) => one);
    expect(accepted).toMatchObject({ body: { event_check: 'no_commitment' } });
    const counted = [...store.stored].filter(([key, times]) => key.endsWith(' verified') && times > 0);
    expect(counted).toEqual([]);
  });

  test('is compared after the node has shown a head that is none', async () => {
    const lie = changed((block) => (receiptOf(block).events[0].data[2] = '0xffffffff'));
    const { height } = lie.body;
    const blocks: FetchedBlock[] = [];
    blocks[height] = lie;
    const store = knownStore(kinds.map((kind) => `${kind} 0.14.1` as const));
    for (const head of [height, 4_000_000_000]) {
      const node = await checkedNode(blocks, { store, mode: 'head', heads: [head, height] });
      await expect(node.getBlockWithReceipts(height)).rejects.toMatchObject({ code: 'BLOCK_MISMATCHED' });
    }
  });

  test('is compared while it is minutes old, whatever head the node reports', async () => {
    const lie = changed((block) => (receiptOf(block).events[0].data[2] = '0xffffffff'));
    const { height, timestamp } = lie.body;
    const blocks: FetchedBlock[] = [];
    blocks[height] = lie;
    const store = knownStore(kinds.map((kind) => `${kind} 0.14.1` as const));
    const heads = [height + 65];
    const at = async (seconds: number) =>
      await checkedNode(blocks, { store, mode: 'head', heads, now: () => 1000 * (timestamp + seconds) });
    await expect((await at(599)).getBlockWithReceipts(height)).rejects.toMatchObject({
      code: 'BLOCK_MISMATCHED',
    });
    expect(await (await at(601)).getBlockWithReceipts(height)).toBeDefined();
  });

  test('is compared wherever it is suspect', async () => {
    const lie = changed((block) => (receiptOf(block).events[0].data[2] = '0xffffffff'));
    const store = knownStore(kinds.map((kind) => `${kind} 0.14.1` as const));
    const node = await checkedNode([lie, lie], { store, mode: 'head', heads: [4_000_000_000] });
    await expect(node.getBlockWithReceipts(1)).resolves.toBeDefined();
    await expect(node.getBlockWithReceipts(1, { isSuspect: true })).rejects.toMatchObject({
      code: 'BLOCK_MISMATCHED',
    });
  });

  const zeroes = ['event_commitment', 'transaction_commitment', 'receipt_commitment'] as const;

  test('passes with its commitments where the node shows zero for all that can be computed', async () => {
    const zero: Change = (block) =>
      Object.assign(block, Object.fromEntries(zeroes.map((name) => [name, '0x0'])));
    const store = knownStore(kinds.map((kind) => `${kind} 0.14.1` as const));
    const { header } = given().body;
    const [found] = await checkedBlocks([changed(zero)], { store }, (block) => block);
    expect(found).toMatchObject({
      eventCommitment: header?.event_commitment,
      body: { header, event_check: 'verified' },
    });
    expect([...store.stored.values()]).toEqual([1, 1, 1, 1]);
  });

  test.each(zeroes)(
    'passes with its commitments also where it is left out and has a zero %s',
    async (name) => {
      const store = knownStore(kinds.map((kind) => `${kind} 0.14.1` as const));
      const zero: Change = (block) => Object.assign(block, { [name]: '0x0' });
      const options = { store, mode: 'head', heads: [2 * given().body.height] } as const;
      const [found] = await checkedBlocks([changed(zero)], options, ({ body }) => body.header);
      expect(found).toEqual(given().body.header);
    },
  );

  test.each(zeroes)('is refused with a zero %s that hides another event, signature or fee', async (name) => {
    const alter: Change = (block) => {
      block[name] = '0x0';
      if (name === 'event_commitment') receiptOf(block).events[0].data[0] = '0x1';
      else if (name === 'receipt_commitment') receiptOf(block).actual_fee.amount = '0x1';
      else signed(block).signature[0] = '0x1';
    };
    expect(await outcomes([given(), changed(alter)])).toEqual(['passed', REFUSED]);
  });

  test.each(['all', 'off'] as const)('with %s, keeps nothing of the answer', async (mode) => {
    const node = await checkedNode([given()], { mode });
    expect(await node.getBlockWithReceipts(0)).not.toHaveProperty('details');
  });
});
