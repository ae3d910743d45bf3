import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { freePort } from '../../infra/embedded/ports.ts';
import { createSimulatedNode } from '../support/starknet/node.ts';
import type { SimulatedNode } from '../support/starknet/node.ts';
import { isolated } from '../support/isolation.ts';
import type { Isolated } from '../support/isolation.ts';
import { allTransfers, eventually, startService } from '../support/service.ts';
import type { RunningService } from '../support/service.ts';
import { RECORDED_BLOCKS, readRecordedBlock, recordedFiles, whySkipped } from '../support/recorded-blocks.ts';

const TRANSFER = 0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9n;
const pad = (hex: string): string => `0x${BigInt(hex).toString(16).padStart(64, '0')}`;

interface RecordedBlock {
  block_number: number;
  timestamp: number;
  transactions: {
    receipt: {
      transaction_hash: string;
      actual_fee: { amount: string; unit: string };
      events: { from_address: string; keys: string[]; data: string[] }[];
    };
  }[];
}

/** The transfers of a recorded block, from the raw JSON: all have 1 key and 4 data felts. */
function expected(block: RecordedBlock): string[] {
  const rows: string[] = [];
  let position = 0;
  for (const { receipt } of block.transactions) {
    for (const { from_address, keys, data } of receipt.events) {
      const [from = '', to = '', low = '', high = ''] = data;
      if (keys.length === 1 && data.length === 4 && BigInt(keys[0] ?? 0) === TRANSFER) {
        const value = (BigInt(high) << 128n) + BigInt(low);
        rows.push(
          [
            position,
            pad(from_address),
            pad(from),
            pad(to),
            value,
            pad(receipt.transaction_hash),
            BigInt(receipt.actual_fee.amount),
          ].join(' '),
        );
      }
      position += 1;
    }
  }
  return rows;
}

describe.skipIf(whySkipped !== '')(`${whySkipped}recorded blocks`, () => {
  const blocks = recordedFiles
    .map((name) => ({ name, block: readRecordedBlock(name) as RecordedBlock }))
    .toSorted((a, b) => a.block.block_number - b.block.block_number);
  let own: Isolated;
  let node: SimulatedNode;
  let service: RunningService;
  let dataDir: string;

  beforeAll(async () => {
    own = await isolated();
    dataDir = mkdtempSync(join(tmpdir(), 'tds-e2e-'));
    // The blocks get heights from 0; contracts are unknown except for tokens with a known address.
    node = await createSimulatedNode({ recorded: { dir: RECORDED_BLOCKS, rebase: true } });
    service = await startService(dataDir, {
      ...own.env,
      STARKNET_RPC_URL: node.url,
      INDEX_FROM: '0',
      PORT: String(await freePort()),
    });
  });
  afterAll(async () => {
    await service?.stop();
    await node?.close();
    await own?.drop();
    rmSync(dataDir, { recursive: true, force: true });
  });

  test.each([
    ['mainnet-2500.json', 8],
    ['mainnet-2800.json', 16],
    ['mainnet-65000.json', 512],
    ['sepolia-3100000.json', 3],
  ])('%s: serves its %i transfers row for row', async (name, count) => {
    const height = blocks.findIndex((entry) => entry.name === name);
    const wanted = expected(blocks[height]!.block);
    expect(wanted).toHaveLength(count);
    await eventually(async () => {
      const { count: servedCount, rows } = await allTransfers(service, `block=${height}`);
      expect(servedCount).toBe(count);
      const served = rows
        .toReversed()
        .map((row) =>
          [
            row.event_index,
            row.token_address,
            row.from_address,
            row.to_address,
            row.kind === 'erc721' ? row.nft_token_id : row.value,
            row.txhash,
            row.fee,
          ].join(' '),
        );
      expect(served).toEqual(wanted);
    });
  });

  test('timestamps and fee tokens equal those of the receipts', async () => {
    const height = blocks.findIndex(({ name }) => name === 'mainnet-65000.json');
    const { rows } = await allTransfers(service, `block=${height}`);
    expect(new Set(rows.map(({ timestamp }) => timestamp))).toEqual(new Set(['2023-05-27T06:21:21Z']));
    expect(new Set(rows.map(({ fee_unit }) => fee_unit))).toEqual(
      new Set(['0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7']),
    );
    expect(rows.filter(({ is_fee }) => is_fee)).toHaveLength(232);
  });
});
