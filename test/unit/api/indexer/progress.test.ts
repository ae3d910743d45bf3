import { describe, expect, it } from 'vitest';

import { networkName, presentProgress } from '../../../../api/indexer/progress.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const textFelt = (text: string) => toFelt(BigInt(`0x${Buffer.from(text).toString('hex')}`));
const totals = (chunk: string, transfers: number, latest: number | null, verified = 0) => ({
  chunk,
  blocks: 1,
  transfers,
  verified,
  latest_transfer_block: latest,
});

describe('presentProgress', () => {
  it('names the network', () => {
    expect(networkName(textFelt('SN_MAIN'))).toBe('mainnet');
    expect(networkName(textFelt('SN_SEPOLIA'))).toBe('sepolia');
    expect(networkName(textFelt('SN_SIM'))).toBe('SN_SIM');
    expect(networkName(null)).toBe('');
  });

  it('computes percent between 0 and 1', () => {
    const percent = (start: number, end: number | null, latest: number | null): number | null | undefined =>
      presentProgress(null, [{ name: 'c', start, end }], [totals('c', 1, latest)]).chunks[0]?.percent;
    expect(percent(100, 200, 150)).toBe(0.5);
    expect(percent(100, 200, 200)).toBe(1);
    expect(percent(100, 200, 100)).toBe(0);
    expect(percent(100, 200, null)).toBe(0);
    expect(percent(100, 200, 99)).toBe(0);
    expect(percent(100, 200, 999)).toBe(1);
    expect(percent(100, 100, 100)).toBeNull();
    expect(percent(100, null, 150)).toBeNull();
  });

  it('sums the verified blocks of the chunks that are shown', () => {
    const chunks = [
      { name: 'a', start: 0, end: 9 },
      { name: 'live', start: 20, end: null },
    ];
    const found = [totals('a', 1, 9, 3), totals('live', 1, 33, 4), totals('never opened', 1, 99, 50)];
    expect(presentProgress(null, chunks, found).verified_blocks).toBe(7);
  });

  it('sums transfers and takes the highest block over all chunks', () => {
    const { chunks, totals: all } = presentProgress(
      null,
      [
        { name: 'a', start: 0, end: 9 },
        { name: 'b', start: 10, end: 19 },
        { name: 'live', start: 20, end: null },
      ],
      [totals('a', 5, 9), totals('live', 2, 33), totals('never opened', 100, 999)],
    );
    expect(chunks.map(({ name, latest_block, transfers }) => [name, latest_block, transfers])).toEqual([
      ['a', 9, 5],
      ['b', 10, 0],
      ['live', 33, 2],
    ]);
    expect(all).toEqual({ transfers: 7, latest_block_overall: 33 });
    expect(presentProgress(null, [], []).totals).toEqual({ transfers: 0, latest_block_overall: 0 });
  });
});
