import { describe, expect, it } from 'vitest';

import { presentTransfer, transferJson } from '../../../../api/transfers/present.ts';
import type { StoredTransfer } from '../../../../projections/transfers/queries.ts';
import { STRK_TOKEN, toFelt } from '../../../../schemas/felt.ts';

const row: StoredTransfer = {
  token: toFelt(1n),
  block: 100,
  position: 5,
  item: 0,
  from: toFelt(2n),
  to: toFelt(3n),
  kind: 'erc20',
  amount: '7',
  token_id: '0',
  txhash: toFelt(4n),
  timestamp: 1_700_000_000,
  fee: '9',
  fee_unit: STRK_TOKEN,
  is_fee: 0,
  execution_status: 'SUCCEEDED',
};

describe('a presented transfer', () => {
  it('is accepted on L1 at and below the L1 height', () => {
    const status = (l1: number | null): string => presentTransfer(row, undefined, l1).status;
    expect([status(null), status(0), status(99), status(100), status(101)]).toEqual([
      'ACCEPTED_ON_L2',
      'ACCEPTED_ON_L2',
      'ACCEPTED_ON_L2',
      'ACCEPTED_ON_L1',
      'ACCEPTED_ON_L1',
    ]);
  });

  it('has a token id for the kinds that have one', () => {
    const id = (kind: StoredTransfer['kind']): string =>
      presentTransfer({ ...row, kind, token_id: '0' }, undefined, null).nft_token_id;
    expect([id('erc20'), id('erc721'), id('erc1155'), id('unknown')]).toEqual(['', '0', '0', '']);
  });

  it('shows an unknown token with empty texts, and decimals of its kind', () => {
    const shown = (kind: StoredTransfer['kind'], decimals: number | null): unknown => {
      const token = { symbol: null, name: null, decimals };
      const { token_symbol, token_name, token_decimals } = presentTransfer({ ...row, kind }, token, null);
      return [token_symbol, token_name, token_decimals];
    };
    expect(shown('erc20', null)).toEqual(['', '', 18]);
    expect(shown('unknown', null)).toEqual(['', '', 18]);
    expect(shown('erc721', null)).toEqual(['', '', 0]);
    expect(shown('erc1155', null)).toEqual(['', '', 0]);
    expect(shown('erc20', 0)).toEqual(['', '', 0]);
    expect(shown('erc721', 3)).toEqual(['', '', 3]);
  });

  it('has the same JSON in a stream', () => {
    const texts = { symbol: 'A"\n\\', name: 'Ünï\u2028', decimals: null };
    const json = { symbol: JSON.stringify(texts.symbol), name: JSON.stringify(texts.name), decimals: null };
    const blockHash = toFelt(5n);
    for (const kind of ['erc20', 'erc721', 'erc1155', 'unknown'] as const) {
      for (const l1Height of [null, 99, 100]) {
        const sent = { ...row, kind, token_id: '12', item: 3, is_fee: Number(kind === 'erc20') };
        expect(transferJson(sent, json, { l1Height, blockHash })).toBe(
          JSON.stringify({ ...presentTransfer(sent, texts, l1Height), block_hash: blockHash }),
        );
      }
    }
  });

  it('numbers the later items of a batch 1,048,576 apart', () => {
    const index = (item: number): number => presentTransfer({ ...row, item }, undefined, null).event_index;
    expect([index(0), index(1), index(1000)]).toEqual([5, 1_048_581, 1_048_576_005]);
  });
});
