import { describe, expect, test } from 'vitest';

import { layoutNames, encodeEvent, type Layout } from '../../../../../infra/embedded/starknet/layouts.ts';

const TRANSFER = '0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9';
const SINGLE = '0x182d859c0807ba9db63baf8b9d9fdbfeb885d820be6e206b9dab626d995c433';
const BATCH = '0x2563683c757f3abe19c4b7237e2285d8993417ddffe0b54a19eb212ea574b08';
const ERC20_EVENT = '0x166373381772db0a01c3a66865fc326c297787697aa52a6ea318e38c42302f7';

// from 0xa1, to 0xb2, operator 0xc3; 0x7000…(2^128)…5: high 7, low 5.
const wide = (7n << 128n) | 5n;

type Case = {
  layout: Layout;
  items: { id: bigint | null; amount: bigint }[];
  keys: string[];
  data: string[];
};

const value = [{ id: null, amount: wide }];
const small = [{ id: null, amount: 9n }];
const nft = [{ id: wide, amount: 1n }];
const pair = [{ id: wide, amount: 9n }];
const two = [
  { id: 1n, amount: wide },
  { id: wide, amount: 2n },
];

// Written by hand, independent of the encoder.
const cases: Case[] = [
  { layout: 'erc20:3/2', items: value, keys: [TRANSFER, '0xa1', '0xb2'], data: ['0x5', '0x7'] },
  { layout: 'erc20:1/4', items: value, keys: [TRANSFER], data: ['0xa1', '0xb2', '0x5', '0x7'] },
  { layout: 'erc20:5/0', items: value, keys: [TRANSFER, '0xa1', '0xb2', '0x5', '0x7'], data: [] },
  { layout: 'erc20:3/1', items: small, keys: [TRANSFER, '0xa1', '0xb2'], data: ['0x9'] },
  { layout: 'erc20:1/3', items: small, keys: [TRANSFER], data: ['0xa1', '0xb2', '0x9'] },
  { layout: 'erc20:4/0', items: small, keys: [TRANSFER, '0xa1', '0xb2', '0x9'], data: [] },
  { layout: 'erc20:3/0', items: small, keys: [TRANSFER, '0xa1', '0xb2'], data: [] },
  {
    layout: 'erc20:component',
    items: value,
    keys: [ERC20_EVENT, TRANSFER, '0xa1', '0xb2'],
    data: ['0x5', '0x7'],
  },
  {
    layout: 'erc20:component-data',
    items: value,
    keys: [ERC20_EVENT, TRANSFER],
    data: ['0xa1', '0xb2', '0x5', '0x7'],
  },
  { layout: 'erc721:5/0', items: nft, keys: [TRANSFER, '0xa1', '0xb2', '0x5', '0x7'], data: [] },
  { layout: 'erc721:1/4', items: nft, keys: [TRANSFER], data: ['0xa1', '0xb2', '0x5', '0x7'] },
  { layout: 'erc721:1/3', items: [{ id: 8n, amount: 1n }], keys: [TRANSFER], data: ['0xa1', '0xb2', '0x8'] },
  {
    layout: 'erc721:4/0',
    items: [{ id: 8n, amount: 1n }],
    keys: [TRANSFER, '0xa1', '0xb2', '0x8'],
    data: [],
  },
  {
    layout: 'erc721:component',
    items: nft,
    keys: [
      '0xa10621c8d1049902a6a0815eb597e033c5f5e05f42185ef212e875d68cf7be',
      TRANSFER,
      '0xa1',
      '0xb2',
      '0x5',
      '0x7',
    ],
    data: [],
  },
  {
    layout: 'erc1155:4/4',
    items: pair,
    keys: [SINGLE, '0xc3', '0xa1', '0xb2'],
    data: ['0x5', '0x7', '0x9', '0x0'],
  },
  {
    layout: 'erc1155:1/7',
    items: pair,
    keys: [SINGLE],
    data: ['0xc3', '0xa1', '0xb2', '0x5', '0x7', '0x9', '0x0'],
  },
  {
    layout: 'erc1155:4/2',
    items: [{ id: 8n, amount: 9n }],
    keys: [SINGLE, '0xc3', '0xa1', '0xb2'],
    data: ['0x8', '0x9'],
  },
  {
    layout: 'erc1155:component',
    items: pair,
    keys: [
      '0x86a9fda6805aad96ad82e284d44197657d462eee717ec0e6f6c3d70a29279f',
      SINGLE,
      '0xc3',
      '0xa1',
      '0xb2',
    ],
    data: ['0x5', '0x7', '0x9', '0x0'],
  },
  {
    layout: 'erc1155:batch',
    items: two,
    keys: [BATCH, '0xc3', '0xa1', '0xb2'],
    data: ['0x2', '0x1', '0x0', '0x5', '0x7', '0x2', '0x5', '0x7', '0x2', '0x0'],
  },
  {
    layout: 'erc1155:batch',
    items: [],
    keys: [BATCH, '0xc3', '0xa1', '0xb2'],
    data: ['0x0', '0x0'],
  },
  {
    layout: 'erc1155:legacy-batch',
    items: two,
    keys: [BATCH],
    data: ['0xc3', '0xa1', '0xb2', '0x2', '0x1', '0x0', '0x5', '0x7', '0x2', '0x5', '0x7', '0x2', '0x0'],
  },
  {
    layout: 'erc1155:component-batch',
    items: [{ id: 8n, amount: 9n }],
    keys: ['0x86a9fda6805aad96ad82e284d44197657d462eee717ec0e6f6c3d70a29279f', BATCH, '0xc3', '0xa1', '0xb2'],
    data: ['0x1', '0x8', '0x0', '0x1', '0x9', '0x0'],
  },
];

describe('event layouts', () => {
  test.each(cases)('encodes $items.length items as $layout', ({ layout, items, keys, data }) => {
    const event = encodeEvent(layout, '0x70', { from: 0xa1n, to: 0xb2n, operator: 0xc3n, items });
    expect(event).toEqual({ from_address: '0x70', keys, data });
  });

  test('every layout is tested', () => {
    expect([...new Set(cases.map(({ layout }) => layout))].sort()).toEqual([...layoutNames].sort());
  });
});
