import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { createSimulatedNode } from '../../../support/starknet/node.ts';
import { countRange } from '../../../support/starknet/counts.ts';
import { blockAt, jsonOf, post, rpc } from '../../../support/starknet/client.ts';

test('a prepared chain serves the same blocks as a live one, is generated once, and has their counts', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'prepared-'));
  const options = {
    manual: true,
    initialHead: 120,
    transfersPerBlock: 60,
    malformed: 0.02,
    copiedTokens: 30,
    seed: 'bench',
  };
  const live = await createSimulatedNode({ ...options, genesisTime: 1_735_689_600 });
  live.chain?.setL1(120);
  try {
    const made = new Map<string, number>();
    for (const round of [1, 2]) {
      const node = await createSimulatedNode({ ...options, preparedDir: dir });
      try {
        for (const height of [0, 1, 77, 120]) {
          expect(await blockAt(node.url, { block_number: height })).toEqual(
            await blockAt(live.url, { block_number: height }),
          );
        }
        const calls = [77, 500, 3].map((block_number, id) => ({
          jsonrpc: '2.0',
          id,
          method: 'starknet_getBlockWithReceipts',
          params: [{ block_number }],
        }));
        expect(await jsonOf(post(node.url, calls))).toEqual(await jsonOf(post(live.url, calls)));
        expect(
          (await rpc(node.url, 'starknet_getBlockWithReceipts', [{ block_number: 121 }])).error?.code,
        ).toBe(24);
        expect(node.preparedTruth).toEqual(await countRange(live.ledger, 0, 120));
        expect(node.preparedTruth?.malformed).toBeGreaterThan(0);
        expect((node.preparedTruth?.transfers ?? 0) / 121).toBeGreaterThan(45);
        node.chain?.advance();
        expect((await blockAt(node.url, 'latest')).block_number).toBe(121);
      } finally {
        await node.close();
      }
      for (const file of readdirSync(dir)) {
        const { mtimeMs } = statSync(join(dir, file));
        if (round === 1) made.set(file, mtimeMs);
        else expect(made.get(file)).toBe(mtimeMs);
      }
    }
  } finally {
    await live.close();
    rmSync(dir, { recursive: true });
  }
});
