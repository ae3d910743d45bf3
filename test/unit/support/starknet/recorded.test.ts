import { describe, expect, test } from 'vitest';

import { createSimulatedNode } from '../../../support/starknet/node.ts';
import { blockAt, rpc } from '../../../support/starknet/client.ts';
import {
  RECORDED_BLOCKS,
  readRecordedBlock,
  recordedFiles,
  whySkipped,
} from '../../../support/recorded-blocks.ts';

describe.skipIf(whySkipped !== '')(`${whySkipped}recorded blocks`, () => {
  test('are served unchanged, by number and hash', async () => {
    const node = await createSimulatedNode({ recorded: { dir: RECORDED_BLOCKS } });
    try {
      for (const file of recordedFiles) {
        const block = readRecordedBlock(file);
        expect(await blockAt(node.url, { block_number: block.block_number })).toEqual(block);
        expect(await blockAt(node.url, { block_hash: block.block_hash })).toEqual(block);
      }
      const { error } = await rpc(node.url, 'starknet_getBlockWithReceipts', [{ block_number: 2501 }]);
      expect(error?.code).toBe(24);
      expect((await rpc(node.url, 'starknet_blockNumber')).result).toBe(3_100_000);
    } finally {
      await node.close();
    }
  });

  test('are renumbered from 0 and linked, with unchanged events', async () => {
    const node = await createSimulatedNode({ recorded: { dir: RECORDED_BLOCKS, rebase: true } });
    try {
      const recorded = recordedFiles
        .map((file) => readRecordedBlock(file))
        .sort((a, b) => a.block_number - b.block_number);
      let parent = '0x0';
      for (const [height, block] of recorded.entries()) {
        const served = await blockAt(node.url, { block_number: height });
        expect([served.block_number, served.parent_hash]).toEqual([height, parent]);
        expect({ ...served, block_hash: 0, parent_hash: 0, block_number: 0 }).toEqual({
          ...block,
          block_hash: 0,
          parent_hash: 0,
          block_number: 0,
        });
        parent = served.block_hash;
      }
      expect((await rpc(node.url, 'starknet_blockNumber')).result).toBe(recorded.length - 1);
    } finally {
      await node.close();
    }
  });

  test('contracts have the given standards; others are unknown', async () => {
    const collection = '0x057c4b510d66eb1188a7173f31cccee47b9736d40185da8144377b896d5ff3';
    const node = await createSimulatedNode({
      recorded: { dir: RECORDED_BLOCKS, standards: { [collection]: 'erc721' } },
    });
    const abiOf = async (address: string) => {
      const { result, error } = await rpc(node.url, 'starknet_getClassAt', [
        { block_number: 65000 },
        address,
      ]);
      return error?.code ?? JSON.stringify(result.abi);
    };
    try {
      expect(await abiOf(collection)).toContain('owner_of');
      expect(await abiOf('0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7')).toContain(
        'decimals',
      );
      expect(await abiOf('0x1108cdbe5d82737b9057590adaf97d34e74b5452f0628161d237746b6fe69e')).toContain(
        '__default__',
      );
      expect(await abiOf('0xdead')).toBe(20);
    } finally {
      await node.close();
    }
  });
});
