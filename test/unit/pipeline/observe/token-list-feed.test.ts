import { describe, expect, it } from 'vitest';

import { readTokenList } from '../../../../pipeline/observe/token-list-feed.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const URL_OF_LIST = 'http://list.example/v1/starknet/tokens?search=x';

/** Serves a list of these pages; `totals` are what each page says, by default the number of all entries. */
function reader(pages: readonly (readonly unknown[])[], totals: readonly number[] = []) {
  const urls: string[] = [];
  return {
    urls,
    get: async (url: string) => {
      urls.push(url);
      const number = Number(new URL(url).searchParams.get('page'));
      return JSON.stringify({
        content: pages[number] ?? [],
        totalPages: pages.length,
        totalElements: totals[number] ?? pages.flat().length,
        size: 100,
        number,
      });
    },
    close: async () => {},
  };
}

const entry = (address: string, tags: readonly string[], logoUri: unknown = null) => ({
  name: 'A name',
  address,
  symbol: 'A',
  decimals: 18,
  logoUri,
  lastDailyVolumeUsd: 1.5,
  extensions: {},
  tags,
});

const readerOf = (pages: readonly (readonly string[])[], totals: readonly number[]) =>
  reader(
    pages.map((addresses) => addresses.map((address) => entry(address, []))),
    totals,
  );

describe('readTokenList', () => {
  it('reads every page of the configured URL', async () => {
    const list = reader([[entry('0x1', []), entry('0x02', [])], [entry('0x3', [])]]);
    const { listings } = await readTokenList(list, URL_OF_LIST);
    expect([...listings.keys()]).toEqual([1n, 2n, 3n].map(toFelt));
    expect(list.urls).toEqual([
      'http://list.example/v1/starknet/tokens?search=x&page=0&size=100',
      'http://list.example/v1/starknet/tokens?search=x&page=1&size=100',
    ]);
  });

  it.each([
    [['Verified', 'AVNU'], { verified: true, common: true, public: false }],
    [['AVNU'], { verified: false, common: false, public: false }],
    [['Verified'], { verified: true, common: false, public: false }],
    [['Community'], { verified: false, common: false, public: true }],
    [['Unruggable'], { verified: false, common: false, public: true }],
    [['Verified', 'Community'], { verified: true, common: false, public: true }],
    [['Unknown'], { verified: false, common: false, public: false }],
    [['verified', 'Another tag'], { verified: false, common: false, public: false }],
  ])('maps the tags %j to %j', async (tags, flags) => {
    const { listings } = await readTokenList(reader([[entry('0xABC', tags)]]), URL_OF_LIST);
    expect(listings.get(toFelt(0xabcn))).toEqual({ token: toFelt(0xabcn), ...flags, logo: null });
  });

  it.each([
    ['https://logos.example/a.png', 'https://logos.example/a.png'],
    ['javascript:alert(1)', null],
    ['data:image/png;base64,AAAA', null],
    ['a.png', null],
    [`https://logos.example/${'a'.repeat(3000)}`, null],
    ['https://logos.example/\u0000 "x"', 'https://logos.example/%00%20%22x%22'],
    [undefined, null],
  ])('reads the logo %j as %j', async (logo, expected) => {
    const { listings } = await readTokenList(reader([[entry('0x1', [], logo)]]), URL_OF_LIST);
    expect(listings.get(toFelt(1n))?.logo).toBe(expected);
  });

  it('skips and counts invalid entries', async () => {
    const entries = [
      entry('STRK', []),
      entry('0x1', []),
      { address: '0x2' },
      null,
      entry(`0x8${'0'.repeat(63)}`, []),
    ];
    const { listings, invalid } = await readTokenList(reader([entries]), URL_OF_LIST);
    expect([...listings.keys()]).toEqual([toFelt(1n)]);
    expect(invalid).toBe(4);
  });

  it.each([
    ['swaps the entries at the border of two pages', [['0x1', '0x2'], ['0x2']], [3, 3]],
    [
      'gains an entry on a page that was read',
      [
        ['0x1', '0x2'],
        ['0x2', '0x3'],
      ],
      [3, 4],
    ],
    ['loses an entry of a page that was read', [['0x1', '0x2'], ['0x4']], [4, 3]],
  ])('reads a list again that %s', async (_, pages, totals) => {
    const first = readerOf(pages, totals);
    const second = readerOf([['0x1', '0x2'], ['0x3']], [3, 3]);
    let requests = 0;
    const get = async (url: string): Promise<string> => {
      requests += 1;
      return await (requests <= 2 ? first : second).get(url);
    };
    const { listings } = await readTokenList({ get, close: async () => {} }, URL_OF_LIST);
    expect([...listings.keys()]).toEqual([1n, 2n, 3n].map(toFelt));
    expect(requests).toBe(4);
  });

  it.each([
    ['on one page once', [['0x1', '0x01'], ['0x3']], 2],
    ['on two pages three times', [['0x1', '0x2'], ['0x2']], 6],
  ])('reads a list that has a token twice %s', async (_, pages, requests) => {
    const list = readerOf(pages, [3, 3]);
    expect((await readTokenList(list, URL_OF_LIST)).listings.size).toBe(2);
    expect(list.urls).toHaveLength(requests);
  });

  it('refuses a list with fewer entries than its total', async () => {
    const cut = reader([[entry('0x1', [])]], [2]);
    await expect(readTokenList(cut, URL_OF_LIST)).rejects.toMatchObject({ code: 'FEED_ANSWER_INVALID' });
  });

  it.each(['[]', '{"content":[]}', '<html>', '{"content":[],"totalPages":1e9,"totalElements":0}'])(
    'refuses %s',
    async (text) => {
      const answer = { get: async () => text, close: async () => {} };
      await expect(readTokenList(answer, URL_OF_LIST)).rejects.toMatchObject({ code: 'FEED_ANSWER_INVALID' });
    },
  );
});
