import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { toFelt } from '../../../schemas/felt.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { aClassHash, aDapp, importRecords } from '../../support/catalogue.ts';

/** The directory of dApps and the class hashes of accounts, as an import made them. */

const LAUNCHED = Date.parse('2024-02-03T04:05:06.007Z');

let world: ApiWorld;
let headers: Record<string, string>;

beforeAll(async () => {
  world = await apiWorld();
  const { token } = await world.makeUser('reader');
  const made = await world.call('POST', '/api/users/auth/create-api-key/', { token, json: { name: 'k' } });
  headers = { 'api-key': made.json.key };
  await importRecords(world, {
    categories: [
      { slug: 'dex', name: 'Exchanges', icon: '🔁' },
      { slug: 'lending', name: 'Lending', icon: '' },
      { slug: 'empty', name: 'Alone', icon: 'https://icons.example/a.svg' },
    ],
    dapps: [
      aDapp('full', {
        name: 'Full',
        tagline: 'Everything is set',
        description: 'Trading of tokens with concentrated liquidity',
        website_url: 'https://full.example',
        docs_url: 'https://docs.full.example',
        logo_url: 'https://full.example/logo.png',
        banner_url: 'https://full.example/banner.png',
        category: 'dex',
        tags: ['AMM', 'swap'],
        networks: ['mainnet', 'sepolia'],
        twitter_url: 'https://x.example/full',
        discord_url: 'https://discord.example/full',
        telegram_url: 'https://t.example/full',
        github_url: 'https://github.example/full',
        tvl_usd: 1234.5,
        daily_users: 12,
        total_transactions: 9_007_199_254_740_991,
        rating: '4.50',
        review_count: 3,
        is_featured: true,
        is_verified: true,
        launched_at: LAUNCHED,
      }),
      aDapp('rhino-fi', { name: 'rhino.fi', description: 'Bridges between chains', tags: ['bridge'] }),
      aDapp('bank', { name: 'Zebra Bank', category: 'lending', tags: ['Lend'], daily_users: 40 }),
      aDapp('kswap', { name: '10KSwap', category: 'dex', tags: ['swap'], networks: ['sepolia'] }),
      aDapp('hidden', { name: 'Hidden', category: 'dex', is_active: false, is_featured: true }),
      aDapp('swapping', { name: 'Other', description: 'You can swap here', daily_users: 40, rating: '3.00' }),
    ],
  });
});
afterAll(() => world?.close());

const get = async (path: string) => await world.call('GET', path, { headers });
const slugs = async (path: string): Promise<string[]> => {
  const { status, json, text } = await get(path);
  expect(status, text).toBe(200);
  return json.results.map(({ slug }: { slug: string }) => slug);
};

describe('dApps', () => {
  it('have every field of the contract, with null, empty or zero for unknown values', async () => {
    const full = (await get('/api/dapps/apps/full/')).json;
    expect(full).toEqual({
      id: 1,
      name: 'Full',
      slug: 'full',
      tagline: 'Everything is set',
      description: 'Trading of tokens with concentrated liquidity',
      url: 'https://full.example',
      website_url: 'https://full.example',
      docs_url: 'https://docs.full.example',
      logo_url: 'https://full.example/logo.png',
      banner_url: 'https://full.example/banner.png',
      category: { id: 1, name: 'Exchanges', slug: 'dex', icon: '🔁' },
      tags: ['AMM', 'swap'],
      networks: ['mainnet', 'sepolia'],
      twitter_url: 'https://x.example/full',
      discord_url: 'https://discord.example/full',
      telegram_url: 'https://t.example/full',
      github_url: 'https://github.example/full',
      tvl_usd: 1234.5,
      daily_users: 12,
      total_transactions: 9_007_199_254_740_991,
      rating: '4.50',
      review_count: 3,
      is_featured: true,
      is_verified: true,
      is_active: true,
      launched_at: '2024-02-03T04:05:06.007Z',
      created_at: expect.stringMatching(/^\d{4}-.*Z$/),
      updated_at: full.created_at,
    });
    const { json: bare } = await get('/api/dapps/apps/rhino-fi/');
    expect(bare).toMatchObject({
      website_url: '',
      docs_url: '',
      banner_url: '',
      category: null,
      tvl_usd: null,
      daily_users: 0,
      rating: '0.00',
      launched_at: null,
    });
    // Every list tells the same of it.
    for (const path of ['apps/?q=full', 'apps/search/?q=full', 'category/dex/'])
      expect((await get(`/api/dapps/${path}`)).json.results[0], path).toEqual(full);
    expect((await get('/api/dapps/discover/')).json.featured).toEqual([full]);
  });

  it('are listed in pages, featured first, then by name, without inactive ones', async () => {
    const all = ['full', 'kswap', 'swapping', 'rhino-fi', 'bank'];
    expect(await slugs('/api/dapps/apps/')).toEqual(all);
    const { json } = await get('/api/dapps/apps/?limit=2&page=2&q=');
    expect(json).toMatchObject({
      links: { next: '?page=3&limit=2', previous: '?page=1&limit=2' },
      count: 5,
      total_pages: 3,
    });
    expect(json.results.map(({ slug }: { slug: string }) => slug)).toEqual(all.slice(2, 4));
    expect((await get('/api/dapps/apps/?page=4&limit=2')).status).toBe(404);
    expect((await get('/api/dapps/apps/hidden/')).status).toBe(404);
    expect(await slugs('/api/dapps/apps/?q=hidden')).toEqual([]);
    expect(await slugs('/api/dapps/category/dex/')).toEqual(['full', 'kswap']);
  });

  it.each([
    ['category=dex', ['full', 'kswap']],
    ['category=nothing', []],
    ['network=sepolia', ['full', 'kswap']],
    ['network=goerli', []],
    ['tag=SWAP', ['full', 'kswap']],
    ['tag=swa', []],
    ['featured=true', ['full']],
    ['featured=no', ['kswap', 'swapping', 'rhino-fi', 'bank']],
    ['verified=1', ['full']],
    ['category=dex&network=mainnet&tag=amm&featured=true&verified=true&q=trade', ['full']],
    ['category=lending&network=sepolia', []],
  ])('are filtered by %s', async (query, expected) => {
    expect(await slugs(`/api/dapps/apps/?${query}`)).toEqual(expected);
  });

  it.each([
    // A stem finds other forms of the word.
    ['trade', ['full']],
    ['traded liquid', ['full']],
    // The last word may be a beginning of one, stemmed or not.
    ['tradin', ['full']],
    ['concentr', ['full']],
    ['concent liq', []],
    ['swap', ['kswap', 'full', 'swapping']],
    ['10k', ['kswap']],
    // Any part of the name.
    ['hino', ['rhino-fi']],
    ['LEND', ['bank']],
    // However words are parted.
    ['rhino.fi', ['rhino-fi']],
    ['fi', ['rhino-fi']],
    ['rhino fi', ['rhino-fi']],
    ['the swaps', ['full', 'kswap', 'swapping']],
    ["bridge' & ! | :* <-> (", ['rhino-fi']],
    // Of the tagline alone.
    ['everything', []],
    ['%', []],
    ["'", []],
    ['🦀', []],
  ])('are found by %s', async (q, expected) => {
    const found = await slugs(`/api/dapps/apps/?q=${encodeURIComponent(q)}`);
    expect(found.toSorted()).toEqual(expected.toSorted());
  });

  it('are ranked by where the word matches: name, then tag, then description', async () => {
    await importRecords(world, {
      dapps: [
        aDapp('in-text', { networks: ['ranked'], description: 'Watch every quokka', is_featured: true }),
        aDapp('in-tag', { networks: ['ranked'], tags: ['quokkas'] }),
        aDapp('in-name', { networks: ['ranked'], name: 'Quokka World' }),
      ],
    });
    expect(await slugs('/api/dapps/apps/?network=ranked&q=quokka')).toEqual(['in-name', 'in-tag', 'in-text']);
    // Not to be met by the other tests.
    await importRecords(world, {
      dapps: ['in-text', 'in-tag', 'in-name'].map((slug) => aDapp(slug, { is_active: false })),
    });
  });

  it('are searched with at least two characters', async () => {
    expect((await get('/api/dapps/apps/search/')).json.errors).toEqual({ q: ['This field is required.'] });
    for (const short of ['a', '%20%20', '%20a', 'a%09', '%C2%A0%C2%A0']) {
      const { status, json } = await get(`/api/dapps/apps/search/?q=${short}`);
      expect([short, status]).toEqual([short, 400]);
      expect(json.errors).toEqual({ q: ['Ensure this field has at least 2 characters.'] });
    }
    expect(await slugs('/api/dapps/apps/search/?q=am')).toEqual(['full']);
  });

  it('are found by their new text after an import, and no longer by the previous one', async () => {
    await importRecords(world, { dapps: [aDapp('changing', { name: 'Before', tags: ['early'] })] });
    expect(await slugs('/api/dapps/apps/?q=before')).toEqual(['changing']);
    const { created_at: at } = (await get('/api/dapps/apps/changing/')).json;
    await importRecords(world, { dapps: [aDapp('changing', { name: 'After' })] });
    expect(await slugs('/api/dapps/apps/?q=before')).toEqual([]);
    expect(await slugs('/api/dapps/apps/?q=early')).toEqual([]);
    expect(await slugs('/api/dapps/apps/?q=after')).toEqual(['changing']);
    expect((await get('/api/dapps/apps/changing/')).json.created_at).toBe(at);
    await importRecords(world, { dapps: [aDapp('changing', { name: 'After', is_active: false })] });
    expect(await slugs('/api/dapps/apps/?q=after')).toEqual([]);
  });

  it('are discovered as featured, recent and popular, at most ten of each', async () => {
    const groups = async (query = '') => {
      const { json } = await get(`/api/dapps/discover/${query}`);
      return Object.fromEntries(
        Object.entries<{ slug: string }[]>(json).map(([key, some]) => [key, some.map(({ slug }) => slug)]),
      );
    };
    expect(await groups()).toEqual({
      featured: ['full'],
      recent: ['swapping', 'kswap', 'bank', 'rhino-fi', 'full'],
      popular: ['swapping', 'bank', 'full', 'rhino-fi', 'kswap'],
    });
    expect(await groups('?network=sepolia')).toEqual({
      featured: ['full'],
      recent: ['kswap', 'full'],
      popular: ['full', 'kswap'],
    });
    const many = Array.from({ length: 12 }, (_, at) => aDapp(`many-${at}`, { networks: ['many'] }));
    await importRecords(world, { dapps: many });
    const { recent, popular } = await groups('?network=many');
    expect(recent).toEqual(
      many
        .map(({ slug }) => slug)
        .slice(2)
        .toReversed(),
    );
    expect(popular).toEqual(many.map(({ slug }) => slug).slice(0, 10));
  });
});

describe('categories', () => {
  it('are listed by name, with the number of visible dApps', async () => {
    const { json } = await get('/api/dapps/categories/');
    expect(json).toEqual({
      links: { next: null, previous: null },
      count: 3,
      total_pages: 1,
      results: [
        { id: 3, name: 'Alone', slug: 'empty', icon: 'https://icons.example/a.svg', dapp_count: 0 },
        { id: 1, name: 'Exchanges', slug: 'dex', icon: '🔁', dapp_count: 2 },
        { id: 2, name: 'Lending', slug: 'lending', icon: '', dapp_count: 1 },
      ],
    });
    expect((await get('/api/dapps/categories/dex/')).json).toEqual(json.results[1]);
    expect((await get('/api/dapps/categories/none/')).status).toBe(404);
  });

  it('list their dApps; an unknown category is 404, an empty one has no results', async () => {
    expect(await slugs('/api/dapps/category/dex/?network=mainnet')).toEqual(['full']);
    expect((await get('/api/dapps/category/dex/?limit=1')).json.links.next).toBe('?page=2&limit=1');
    expect(await slugs('/api/dapps/category/empty/')).toEqual([]);
    expect((await get('/api/dapps/category/none/')).status).toBe(404);
  });
});

describe('class hashes of accounts', () => {
  const year = (n: number): number => Date.UTC(n, 0, 1);
  beforeAll(async () => {
    await importRecords(world, {
      class_hashes: [
        aClassHash(1n, { version: '1', released_at: year(2023) }),
        aClassHash(2n, { version: '2', released_at: year(2024) }),
        aClassHash(3n, { version: '3', released_at: year(2025), is_active: false }),
        aClassHash(4n, { version: 'unknown' }),
        aClassHash(5n, { network: 'sepolia', version: '5', released_at: year(2026) }),
        aClassHash(6n, { account_type: 'braavos' }),
        aClassHash(7n, { account_type: 'braavos' }),
        aClassHash(1n, { network: 'sepolia', account_type: 'braavos' }),
        aClassHash(8n, { account_type: 'gone', is_active: false }),
        aClassHash(9n, { network: 'goerli', version: '0.9.0' }),
        aClassHash(10n, { network: 'goerli', version: '0.10.0' }),
        aClassHash(11n, { network: 'goerli', version: '0.2' }),
      ],
    });
  });

  it('are listed by network and type, newest first', async () => {
    const { json } = await get('/api/dapps/account-class-hashes/?network=mainnet&account_type=argent');
    expect(json.count).toBe(4);
    expect(json.results.map(({ version }: { version: string }) => version)).toEqual([
      '3',
      '2',
      '1',
      'unknown',
    ]);
    const [first] = json.results;
    expect(first).toEqual({
      id: 3,
      network: 'mainnet',
      account_type: 'argent',
      class_hash: toFelt(3n),
      version: '3',
      is_active: false,
      released_at: '2025-01-01T00:00:00.000Z',
      created_at: first.created_at,
      updated_at: first.created_at,
    });
    expect((await get('/api/dapps/account-class-hashes/3/')).json).toEqual(first);
    expect((await get('/api/dapps/account-class-hashes/99/')).status).toBe(404);
    expect((await get('/api/dapps/account-class-hashes/?is_active=true')).json.count).toBe(10);
  });

  it('include the newest active one of each type', async () => {
    const latest = async (query = '') => (await get(`/api/dapps/account-class-hashes/latest/${query}`)).json;
    expect(await latest('?network=mainnet')).toEqual({ argent: toFelt(2n), braavos: toFelt(7n) });
    expect(await latest('?network=sepolia')).toEqual({ argent: toFelt(5n), braavos: toFelt(1n) });
    expect(await latest()).toEqual({ argent: toFelt(5n), braavos: toFelt(1n) });
    expect(await latest('?network=goerli')).toEqual({ argent: toFelt(10n) });
    expect(await latest('?network=other')).toEqual({});
  });
});
