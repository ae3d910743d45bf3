import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';

import { expect, test } from 'vitest';

import { createLogger } from '../../../../infra/log.ts';
import { createMetrics } from '../../../../infra/metrics.ts';
import { withHashChecks } from '../../../../pipeline/ingest/hash-checks.ts';
import type { HashCheckDeps } from '../../../../pipeline/ingest/hash-checks.ts';
import { createIngestMetrics } from '../../../../pipeline/ingest/metrics.ts';
import { parseBlockWithReceipts } from '../../../../pipeline/node/parse.ts';
import type { FetchedBlock } from '../../../../pipeline/node/types.ts';
import { ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';
import { madeUpHeader, makeBlock } from '../../../support/chain-messages.ts';
import { withTrueHash } from '../../../support/true-chain.ts';

const never = () => Promise.reject(new Error('not expected'));

function fetched(height: number, isTrue: boolean, starknet_version = '0.14.1'): FetchedBlock {
  const made = { ...makeBlock({ height, transactions: [] }), starknet_version, header: madeUpHeader };
  const body = isTrue ? withTrueHash(made, toFelt(9n)) : made;
  return { body, status: 'ACCEPTED_ON_L2', eventCommitment: null, bytes: 1 };
}

/** The stored versions, and a count of how often they were read. */
const store = (...versions: string[]) => ({ versions, reads: 0 });

async function outcomes(
  blocks: readonly FetchedBlock[],
  mode: HashCheckDeps['mode'] = 'sample',
  stored = store(),
): Promise<string[]> {
  const node = withHashChecks({
    node: {
      chainId: never,
      specVersion: never,
      blockHashAndNumber: never,
      getBlockHeader: never,
      l1Accepted: never,
      getBlockWithReceipts: async (id) => blocks[Number(id)] ?? (await never()),
    },
    versions: {
      async all() {
        stored.reads += 1;
        return stored.versions;
      },
      add: async (version) => void stored.versions.push(version),
    },
    mode,
    metrics: createIngestMetrics(createMetrics('test')),
    log: createLogger('test', 'silent'),
  });
  const found = [];
  for (const [index, block] of blocks.entries())
    found.push(
      await node.getBlockWithReceipts(index).then(
        (same) => (same === block ? 'passed' : 'changed'),
        (error) => `${error.code}, retryable: ${error.retryable}`,
      ),
    );
  return found;
}

const REFUSED = 'BLOCK_MISMATCHED, retryable: true';

test('passes blocks of another hash until one of their version has matched, and refuses them from then on', async () => {
  const stored = store();
  const blocks = [fetched(0, false), fetched(1, true), fetched(2, false), fetched(3, true)];
  expect(await outcomes(blocks, 'sample', stored)).toEqual(['passed', 'passed', REFUSED, 'passed']);
  expect(stored.versions).toEqual(['0.14.1']);
  // A process that starts later.
  expect(await outcomes([fetched(4, false)], 'sample', stored)).toEqual([REFUSED]);
});

test('passes blocks of a version of which none has matched', async () => {
  const blocks = [fetched(0, true), fetched(1, false, '0.15.0'), fetched(2, false)];
  expect(await outcomes(blocks)).toEqual(['passed', 'passed', REFUSED]);
});

test('passes blocks whose hash cannot be computed', async () => {
  const old = fetched(0, false, '0.13.1');
  const { header: _, ...body } = fetched(1, false).body;
  expect(await outcomes([old, { ...old, body }], 'sample', store('0.13.1', '0.14.1'))).toEqual([
    'passed',
    'passed',
  ]);
});

test('passes a block with a commitment that the node does not know', async () => {
  const { body, ...rest } = fetched(0, false);
  const header = { ...madeUpHeader, state_diff_commitment: ZERO_FELT };
  expect(await outcomes([{ ...rest, body: { ...body, header } }], 'sample', store('0.14.1'))).toEqual([
    'passed',
  ]);
});

test('record and off refuse none, and off learns nothing', async () => {
  const blocks = [fetched(0, true), fetched(1, false)];
  const stored = store();
  expect(await outcomes(blocks, 'off', stored)).toEqual(['passed', 'passed']);
  expect(stored.versions).toEqual([]);
  expect(await outcomes(blocks, 'record', stored)).toEqual(['passed', 'passed']);
});

test('reads the stored versions once in sixteen blocks of another hash', async () => {
  const stored = store();
  await outcomes(
    Array.from({ length: 33 }, (_, height) => fetched(height, false)),
    'sample',
    stored,
  );
  expect(stored.reads).toBe(3);
});

const file = resolve(import.meta.dirname, '../../../../../shared/blocks/sepolia-3100000.json');
test.skipIf(!existsSync(file))(
  'refuses the recorded block with another header once it has matched',
  async () => {
    const given = JSON.parse(readFileSync(file, 'utf8'));
    const blocks = [given, { ...given, new_root: ZERO_FELT }].map((one) => parseBlockWithReceipts(one, 1));
    expect(await outcomes(blocks)).toEqual(['passed', REFUSED]);
  },
);
