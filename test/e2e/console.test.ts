import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';

import { parse } from 'csv-parse/sync';
import type { Page, Request, Route } from 'playwright-core';
import { request } from 'undici';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';

import { amountText, countText, usdText } from '../../console/src/format.ts';
import { EVENT_CHECKS } from '../../console/src/ui/event-check.ts';
import { topics } from '../../schemas/topics.ts';
import { freePort } from '../../infra/embedded/ports.ts';
import { WIDTHS, browse } from '../support/browser.ts';
import type { Browsing } from '../support/browser.ts';
import { spawnRole } from '../support/faults/role.ts';
import { eventually } from '../support/service.ts';
import { createSimulatedFeed } from '../support/simulated-feed.ts';
import { createSimulatedGateway } from '../support/simulated-gateway.ts';
import { simulatedService } from '../support/simulated-service.ts';
import type { SimulatedService } from '../support/simulated-service.ts';

const STRK = '0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
const ETH = '0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7';
const HEAD = 60;
const BLOCK_SECONDS = 900;

const transfers = z.object({
  count: z.number(),
  results: z.array(
    z.object({
      from_address: z.string(),
      to_address: z.string(),
      txhash: z.string(),
      block: z.number(),
      fee: z.string(),
      value: z.string(),
      is_fee: z.boolean(),
    }),
  ),
});
const portfolio = z.object({ data: z.object({ total_usd: z.number(), holdings: z.array(z.unknown()) }) });
const owned = z.object({
  count: z.number(),
  data: z.array(z.object({ token_address: z.string(), nft_token_id: z.string() })),
});
const verification = z.object({
  heights: z.object({
    first: z.number().nullable(),
    last: z.number().nullable(),
    verified: z.number(),
    unverifiable: z.number(),
    reasons: z.object({ not_checked: z.number() }),
  }),
  quarantined: z.object({ events: z.number() }),
});
const progress = z.object({ totals: z.object({ transfers: z.number(), latest_block_overall: z.number() }) });

/** Texts that run where a page takes them for markup, an attribute or a URL. */
const corpus = [
  '<script>window.ran=1</script>',
  '<img src=x onerror=window.ran=1>',
  '"><svg onload=window.ran=1>',
  "' onmouseover='window.ran=1' x='",
  'javascript:window.ran=1',
  '{{constructor.constructor("window.ran=1")()}}',
  '</title><script>window.ran=1</script>',
  '\u202e<b>gpj.exe</b>\u0000\u2028',
];
const images = [
  'javascript:window.ran=1',
  'https://elsewhere.example/x.svg',
  'data:text/html,<script>window.ran=1</script>',
  `data:image/svg+xml,${encodeURIComponent('<svg xmlns="http://www.w3.org/2000/svg" onload="top.ran=1"><script>top.ran=1</script></svg>')}`,
  '//elsewhere.example/x.png',
  'blob:https://elsewhere.example/1',
];

let world: SimulatedService;
let browsing: Browsing;
let receiver: Server;
let received: string[] = [];
let isReceiverBroken = false;
/** With transfers in and out, a value and NFTs. */
let account: string;
let gateway: Awaited<ReturnType<typeof createSimulatedGateway>>;
const closers: (() => Promise<unknown>)[] = [];

const api = async <T>(path: string, schema: z.ZodType<T>): Promise<T> => {
  const { status, json } = await world.service.get(path);
  if (status !== 200) throw new Error(`${status} of ${path}`);
  return schema.parse(json);
};
const main = () => browsing.page.locator('main');
const figure = (name: string) => browsing.page.locator(`[data-figure="${name}"]`);
const isLoaded = async (): Promise<void> => {
  await expect.poll(async () => await main().locator('.loading').count()).toBe(0);
};

/** Goes to a screen as a link does, without losing what the page has recorded. */
const open = async (path: string): Promise<void> => {
  // Within one page there is no answer.
  expect((await browsing.page.goto(path))?.status() ?? 200, path).toBe(200);
  await isLoaded();
};

const searchFor = async (text: string): Promise<void> => {
  await browsing.page.getByRole('searchbox').fill(text);
  await browsing.page.getByRole('button', { name: 'Search' }).click();
};

const logIn = async ({ username, password } = world.service.demo): Promise<void> => {
  await browsing.page.getByLabel('User name or e-mail address').fill(username);
  await browsing.page.getByLabel('Password').fill(password);
  await browsing.page.getByRole('button', { name: 'Log in' }).click();
};

async function sessionToken(): Promise<string> {
  const stored = String(await browsing.page.evaluate('sessionStorage.getItem("session")'));
  return z.object({ token: z.string() }).parse(JSON.parse(stored)).token;
}

/** Calls a route with the session of the page. */
async function sessionCall(path: string): Promise<unknown> {
  return (await world.service.get(path, { authorization: `Bearer ${await sessionToken()}` })).json;
}

/** Waits until the first rows of a token's transfers are those of the API. */
async function expectNewestTransfers(token: string): Promise<void> {
  const region = browsing.page.getByRole('region', { name: 'Newest transfers of the token' });
  const links = region.locator('tbody a[href^="/tx/"]');
  await expect
    .poll(async () => {
      const { results } = await api(`/api/transfers/?token=${token}&limit=100`, transfers);
      const hashes = await links.evaluateAll((all) => all.map((link) => link.getAttribute('title')));
      expect(hashes.length).toBeGreaterThanOrEqual(50);
      return hashes.slice(0, 100).every((hash, i) => hash === results[i]?.txhash);
    })
    .toBe(true);
}

const receipts = z.object({
  result: z.object({
    block_hash: z.string(),
    transactions: z.array(
      z.object({
        receipt: z.object({
          transaction_hash: z.string(),
          events: z.array(
            z.object({ from_address: z.string(), keys: z.array(z.string()), data: z.array(z.string()) }),
          ),
        }),
      }),
    ),
  }),
});

/** A block as the node has it. */
async function nodeBlock(height: number): Promise<z.infer<typeof receipts>['result']> {
  const call = { method: 'starknet_getBlockWithReceipts', params: { block_id: { block_number: height } } };
  const answer = await fetch(world.node.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, ...call }),
  });
  return receipts.parse(await answer.json()).result;
}

/** The raw events on the screen, each as its index, emitter, keys and data. */
async function shownEvents(caption: string): Promise<unknown[]> {
  const region = browsing.page.getByRole('region', { name: caption });
  await region.waitFor();
  return await Promise.all(
    (await region.locator('tbody tr').all()).map(async (row) => {
      const felts = async (column: number): Promise<bigint[]> =>
        await Promise.all(
          (await row.locator('td').nth(column).locator('button').all()).map(async (button) =>
            BigInt((await button.getAttribute('title'))?.split(' ')[0] ?? ''),
          ),
        );
      const columns = await row.locator('td').count();
      const emitter = await row.locator('td').nth(2).locator('a').getAttribute('title');
      return [
        Number((await row.locator('td').first().textContent())?.replaceAll(',', '')),
        BigInt(emitter ?? ''),
        await felts(columns - 2),
        await felts(columns - 1),
      ];
    }),
  );
}

/** An account of the newest blocks that owns NFTs and few tokens of the fees' recipient. */
async function findAccount(): Promise<string> {
  const { results } = await api(`/api/transfers/?token=${ETH}&limit=100`, transfers);
  for (const { from_address: one } of results) {
    if (BigInt(one) === 0n) continue;
    const { count } = await api(`/api/nft/owned-by/?account_address=${one}`, owned);
    const { count: moved } = await api(`/api/transfers/?account=${one}&limit=1`, transfers);
    const { data } = await api(`/api/portfolio/?account_address=${one}`, portfolio);
    if (count > 1 && moved > 60 && data.total_usd > 0) return one;
  }
  throw new Error('no account with NFTs and a value');
}

beforeAll(async () => {
  const feed = await createSimulatedFeed();
  gateway = await createSimulatedGateway();
  closers.push(
    () => feed.close(),
    () => gateway.close(),
  );
  receiver = createServer((request, response) => {
    received.push(request.url ?? '');
    response.statusCode = isReceiverBroken ? 500 : 200;
    response.end('thanks');
  });
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  closers.push(async () => receiver.close());
  const genesisTime = Math.floor(Date.now() / 1000) - (HEAD + 10) * BLOCK_SECONDS;
  world = await simulatedService(
    { initialHead: HEAD, blockSeconds: BLOCK_SECONDS, genesisTime, l1Height: 50 },
    {
      settings: {
        PRICE_FEED_URL: feed.url,
        TOKEN_LIST_URL: `${feed.url}/v1/starknet/tokens`,
        IPFS_GATEWAY_URL: gateway.url,
        NFT_ALLOW_NETWORKS: '127.0.0.0/8',
        WEBHOOK_ALLOW_NETWORKS: '127.0.0.0/8',
      },
    },
  );
  closers.push(() => world.close());
  await eventually(async () => {
    const { totals } = await api('/api/indexer/progress/', progress);
    expect(totals.latest_block_overall).toBe(HEAD);
  });
  account = await eventually(findAccount, 60_000, 1000);
  browsing = await browse(world.service.baseUrl, '.cache/console');
  closers.push(() => browsing.close());
});
afterAll(async () => {
  for (const close of closers.toReversed()) await close();
});
afterEach(async () => {
  expect(await browsing.problems()).toEqual([]);
});

describe('the console in a browser', () => {
  test('shows anyone how much of the index is verified, and nothing else', async () => {
    const { page } = browsing;
    const refused: string[] = [];
    page.on('response', (answer) => {
      if (answer.status() === 401) refused.push(answer.url());
    });
    await page.goto('/');
    await page.getByRole('heading', { name: 'Log in' }).waitFor();
    const links = page.getByRole('navigation', { name: 'Main' }).getByRole('link');
    expect(await links.allInnerTexts()).toEqual(['Verification', 'API reference']);
    await links.first().click();
    const { heights } = await api('/api/verification/', verification);
    await expect.poll(async () => await figure('verified').textContent()).toBe(countText(heights.verified));
    await browsing.check('verification without a log-in');
    for (const path of ['/keys', '/operations?view=verification', `/token/${ETH}`]) {
      await page.goto(path);
      await page.getByRole('heading', { name: 'Log in' }).waitFor();
    }
    refused.length = 0;
    await page.route('/api/verification/', async (route) => {
      const response = await route.fetch();
      const nonzero = [{ token_address: ETH, sum: '-5' }];
      const conservation = { tokens: 2, nonzero, at: '2026-01-01T00:00:00Z', to: 5 };
      await route.fulfill({ response, json: { ...(await response.json()), conservation } });
    });
    await page.goto('/verification/');
    await page.getByText('-5 units of').waitFor();
    await page.unroute('/api/verification/');
    await page.getByRole('link', { name: 'Log in' }).click();
    await page.getByRole('heading', { name: 'Log in' }).waitFor();
    expect(refused).toEqual([]);
  });

  test('lets a person in by user name and password, and says why not', async () => {
    const { page } = browsing;
    const scripts = new Set<string>();
    const note = (asked: Request): void => {
      if (asked.url().endsWith('.js')) scripts.add(asked.url());
    };
    page.on('requestfinished', note);
    await page.goto('/');
    await page.getByRole('button', { name: 'Log in' }).waitFor();
    await browsing.check('log-in');
    await page.getByLabel('User name or e-mail address').fill('demo');
    await page.getByLabel('Password').fill('wrong');
    await page.getByRole('button', { name: 'Log in' }).click();
    await expect
      .poll(async () => await page.getByRole('alert').textContent())
      .toContain('Unable to log in with provided credentials.');
    await logIn();
    await page.getByRole('heading', { name: 'Token transfers on Starknet' }).waitFor();
    page.off('requestfinished', note);
    // Compressed: this client decodes nothing.
    const weigh = async (url: string): Promise<number> => {
      const { body } = await request(url, { headers: { 'accept-encoding': 'gzip' } });
      return (await body.arrayBuffer()).byteLength;
    };
    const bytes = (await Promise.all([...scripts].map(weigh))).reduce((sum, size) => sum + size, 0);
    process.stdout.write(`console: ${bytes} bytes of scripts for home\n`);
    // Compressed, and without the API reference, which is larger than the rest.
    expect(bytes).toBeGreaterThan(10_000);
    expect(bytes).toBeLessThan(150_000);
    await page.reload();
    await page.getByRole('region', { name: 'Newest blocks' }).waitFor();
    const loaded = await page.evaluate('performance.now()');
    process.stdout.write(`console: live ${Number(loaded).toFixed(0)} ms after a reload began\n`);
    // Nothing that the browser would send by itself.
    expect(await page.context().cookies()).toEqual([]);
  });

  test('shows the head, and new blocks and a reorg as they happen', async () => {
    const { page } = browsing;
    await page.getByRole('heading', { name: 'Newest blocks' }).waitFor();
    const { totals } = await api('/api/indexer/progress/', progress);
    const head = async (): Promise<string | null> => await figure('head').locator('a').textContent();
    await expect.poll(head).toBe(countText(HEAD));
    await expect.poll(async () => await figure('transfers').textContent()).toBe(countText(totals.transfers));
    world.node.control({ command: 'advance', blocks: 2 });
    await expect.poll(head).toBe(countText(HEAD + 2));
    const newest = page
      .getByRole('region', { name: 'Newest blocks' })
      .locator('tbody tr')
      .first()
      .locator('a');
    const hashOf = (height: number): bigint => BigInt(world.node.ledger.at(height)?.hash ?? 0);
    const shownHash = async (): Promise<bigint> => BigInt((await newest.getAttribute('title')) ?? 0);
    const before = await shownHash();
    expect(before).toBe(hashOf(HEAD + 2));
    world.node.control({ command: 'reorg', depth: 1, length: 1, force: true });
    expect(hashOf(HEAD + 2)).not.toBe(before);
    await expect.poll(shownHash).toBe(hashOf(HEAD + 2));
    await browsing.check('home');
  });

  test('shows Home in a seventh tab, and goes on in one that is shown again', async () => {
    const { page } = browsing;
    const show = async (tab: Page, state: 'visible' | 'hidden'): Promise<void> => {
      await tab.evaluate(`Object.defineProperty(document, 'visibilityState', { value: '${state}', configurable: true });
        document.dispatchEvent(new Event('visibilitychange'))`);
    };
    const headOf = (tab: Page) => tab.locator('[data-figure="head"] a');
    const blocks = page.getByRole('region', { name: 'Newest blocks' }).locator('tbody tr');
    const before = await blocks.count();
    const tabs: Page[] = [];
    for (let last = page; tabs.length < 6; last = tabs.at(-1) ?? page) {
      await show(last, 'hidden');
      const tab = await page.context().newPage();
      tabs.push(tab);
      await tab.goto('/');
      // Its stream is open then.
      await headOf(tab).waitFor();
    }
    world.node.control({ command: 'advance', blocks: 1 });
    const head = countText(world.node.ledger.head());
    await headOf(tabs.at(-1) ?? page)
      .getByText(head)
      .waitFor();
    expect(await headOf(page).textContent()).not.toBe(head);
    await show(page, 'visible');
    await headOf(page).getByText(head).waitFor();
    expect(await blocks.count()).toBe(before + 1);
    for (const tab of tabs) await tab.close();
  });

  test('says nothing of a head or a backfill before there is any', async () => {
    const { page } = browsing;
    const hanging = /\/api\/stream\/transfers\//;
    await page.route(hanging, () => {});
    const shown = async (chunks: readonly object[], latest_block_overall: number) => {
      const totals = { transfers: 0, latest_block_overall };
      await page.route('/api/indexer/progress/', async (route) => {
        await route.fulfill({ json: { network: '', chunks, totals, verified_blocks: 0 } });
      });
      await open('/');
      await page.unroute('/api/indexer/progress/');
      return [await figure('head').textContent(), await figure('backfill').textContent()];
    };
    expect(await shown([], 0)).toEqual(['–', '–']);
    // A chunk without a transfer has its start as its latest block.
    const live = { name: 'live', range: [5000, null], latest_block: 5000, transfers: 0, percent: null };
    expect(await shown([live], 5000)).toEqual(['–', 'complete']);
    await page.unroute(hanging);
    await open('/');
    await figure('head').locator('a').waitFor();
    expect(await figure('backfill').textContent()).toBe('complete');
  });

  test('finds tokens, blocks, transactions and accounts', async () => {
    const { page } = browsing;
    const { results } = await api(`/api/transfers/?account=${account}&limit=1`, transfers);
    const [{ txhash, block, fee } = { txhash: '', block: 0, fee: '' }] = results;
    await searchFor('usd c');
    await page.getByRole('link', { name: 'USDC' }).waitFor();
    await browsing.check('search');

    await searchFor(String(block));
    await page.getByRole('heading', { name: `Block ${block}` }).waitFor();
    const { count } = await api(`/api/transfers/?block=${block}&limit=1`, transfers);
    await expect.poll(async () => await figure('count').textContent()).toBe(countText(count));
    await isLoaded();
    await browsing.check('block');
    const known = await nodeBlock(block);
    await searchFor(known.block_hash);
    await expect.poll(async () => new URL(page.url()).pathname).toBe(`/block/${block}`);
    await expect
      .poll(async () => await figure('hash').getByRole('button').getAttribute('title'))
      .toContain(BigInt(known.block_hash).toString(16));
    const events = known.transactions.flatMap(({ receipt }) => receipt.events);
    await expect.poll(async () => await figure('events').textContent()).toBe(countText(events.length));
    const wanted = events.map(({ from_address, keys, data }, index) => [
      index,
      BigInt(from_address),
      keys.map(BigInt),
      data.map(BigInt),
    ]);
    await expect.poll(async () => await shownEvents('Events of the block')).toEqual(wanted.slice(0, 25));
    const emitters = page.getByRole('region', { name: 'Events of the block' }).locator('td:nth-child(3) a');
    const hrefs = await Promise.all(
      events.slice(0, 25).map(async ({ from_address: emitter }) => {
        const { status, json } = await world.service.get(`/api/tokens/${emitter}/`);
        if (status !== 200) return `/account/0x${BigInt(emitter).toString(16).padStart(64, '0')}`;
        return `/token/${z.object({ address: z.string() }).parse(json).address}`;
      }),
    );
    expect(new Set(hrefs.map((href) => href.split('/')[1]))).toEqual(new Set(['token', 'account']));
    await expect
      .poll(async () => await Promise.all((await emitters.all()).map((one) => one.getAttribute('href'))))
      .toEqual(hrefs);
    await page.getByRole('region', { name: 'Events of the block' }).getByText('Transfer').first().waitFor();
    const felt = page.getByRole('region', { name: 'Events of the block' }).locator('.felts button').first();
    await felt.click();
    await expect
      .poll(async () => BigInt(String(await page.evaluate('navigator.clipboard.readText()'))))
      .toBe(BigInt(events[0]?.keys[0] ?? 0));

    await searchFor(txhash);
    await page.getByRole('heading', { name: `Transaction ${txhash}` }).waitFor();
    await expect
      .poll(async () => await figure('fee').getByRole('button').getAttribute('title'))
      .toContain(amountText(BigInt(fee), 18));
    const hashes = known.transactions.flatMap(({ receipt }) =>
      receipt.events.map(() => BigInt(receipt.transaction_hash)),
    );
    await expect
      .poll(async () => await shownEvents('Events of the transaction'))
      .toEqual(wanted.filter((_, index) => hashes[index] === BigInt(txhash)).slice(0, 25));
    const { event_check: outcome } = await api(
      `/api/blocks/${block}/`,
      z.object({ event_check: z.string() }),
    );
    await expect.poll(async () => await figure('event-check').textContent()).toBe(EVENT_CHECKS[outcome]);
    await browsing.check('transaction');

    await searchFor(account.replace(/^0x0*/, '0x'));
    await page.getByRole('heading', { name: `Account ${account}` }).waitFor();
  });

  test('shows the portfolio of an account now and at a time', async () => {
    const { page } = browsing;
    await open(`/account/${account}`);
    const shown = async (): Promise<string> =>
      (await figure('value').getByRole('button').getAttribute('title'))?.split(' ')[0] ?? '';
    const now = await api(`/api/portfolio/?account_address=${account}`, portfolio);
    await expect.poll(shown).toBe(usdText(now.data.total_usd));
    await page.locator('.plot canvas').nth(1).waitFor();
    await browsing.check('account');

    await page.getByLabel('Portfolio at').fill('60');
    await expect.poll(shown).not.toBe(usdText(now.data.total_usd));
    const at = await page.locator('.figure', { hasText: 'As of' }).locator('time').getAttribute('datetime');
    const then = await api(`/api/portfolio/?account_address=${account}&at_time=${at}`, portfolio);
    expect(await shown()).toBe(usdText(then.data.total_usd));
    await expect.poll(async () => await main().locator('tbody tr').count()).toBe(then.data.holdings.length);
  });

  test('draws the value by a coarser interval where the account has too many tokens for a finer one', async () => {
    const { page } = browsing;
    const first = new RegExp(`/api/transfers/\\?.*account=${account}.*order=asc`);
    const timestamp = new Date(Date.now() - 40 * 86_400_000).toISOString();
    await page.route(first, async (route) => {
      await route.fulfill({ json: { results: [{ timestamp }], links: { next: null }, count: 1 } });
    });
    const asked: (string | null)[] = [];
    let errors: object = { start_time: ['too many balances'] };
    await page.route(/\/api\/portfolio-history\//, async (route) => {
      const interval = new URL(route.request().url()).searchParams.get('interval');
      asked.push(interval);
      const json = { detail: 'too many', code: 'invalid', errors };
      await (interval === '1 day' ? route.fulfill({ status: 400, json }) : route.continue());
    });
    await open(`/account/${account}`);
    await page.getByRole('img', { name: /^Value in US dollars: [67] points/ }).waitFor();
    expect(asked).toEqual(['1 day', '1 week']);
    // Any other reason is one for all intervals.
    errors = { account_address: ['too many tokens'] };
    await page.reload();
    await page.getByRole('region', { name: 'Value' }).getByText('too many').waitFor();
    expect(asked).toEqual(['1 day', '1 week', '1 day']);
    await page.unroute(first);
    await page.unroute(/\/api\/portfolio-history\//);
  });

  test('draws the balance of a token as the API answers it', async () => {
    const { page } = browsing;
    await open(`/account/${account}`);
    await page.getByRole('button', { name: 'Show the balance of STRK as a curve' }).click();
    const dated = z.object({ results: z.array(z.object({ timestamp: z.string() })) });
    const { results } = await api(`/api/transfers/?account=${account}&order=asc&limit=1`, dated);
    const query = new URLSearchParams({
      account_address: account,
      token_address: STRK,
      start_time: results[0]?.timestamp ?? '',
    });
    const history = z.object({ data: z.array(z.object({ balance: z.string() })) });
    const { data } = await api(`/api/balance-history/?${query.toString()}`, history);
    expect(data.length).toBeGreaterThan(2);
    const balances = data.map(({ balance }) => BigInt(balance));
    const sorted = balances.toSorted((a, b) => (a < b ? -1 : 1));
    const [newest, lowest, highest] = [balances.at(-1), sorted[0], sorted.at(-1)].map(
      (balance) => `${amountText(balance ?? -1n, 18)} STRK`,
    );
    const curve = page.getByRole('img', { name: /^Balance of STRK: / });
    await expect
      .poll(async () => await curve.getAttribute('aria-label'))
      // The last point is the newest balance, now.
      .toBe(
        `Balance of STRK: ${data.length + 1} points, newest ${newest}, lowest ${lowest}, highest ${highest}`,
      );
  });

  test('draws the balance since the newest 10,000 transfers where there are more, and says so', async () => {
    const { page } = browsing;
    const dated = z.object({ results: z.array(z.object({ timestamp: z.string() })) });
    const { results } = await api(`/api/transfers/?account=${account}&token=${ETH}&limit=5`, dated);
    const oldest = results.at(-1)?.timestamp ?? '';
    const isLastShown = ({ pathname, searchParams }: URL): boolean =>
      pathname === '/api/transfers/' &&
      searchParams.get('page') === '100' &&
      searchParams.get('limit') === '100';
    await page.route(isLastShown, async (route) => {
      await route.fulfill({ json: { results: [{ timestamp: oldest }], links: { next: '?page=101' } } });
    });
    const asked = page.waitForRequest(/\/api\/balance-history\//);
    await open(`/account/${account}`);
    const { searchParams } = new URL((await asked).url());
    expect(searchParams.get('start_time')).toBe(oldest);
    await page.getByText('Since the newest 10,000 transfers.').waitFor();
    await page.unroute(isLastShown);
  });

  test('asks once for a page of a list that fails, and shows why', async () => {
    const { page } = browsing;
    let asked = 0;
    const pages = /\/api\/transfers\/\?.*cursor=/;
    await page.route(pages, async (route) => {
      asked += 1;
      await (asked === 1 ? route.continue() : route.fulfill({ status: 500, body: '{}' }));
    });
    await open(`/token/${ETH}`);
    const scroll = async (): Promise<number> => {
      await page.evaluate('scrollTo(0, document.body.scrollHeight)');
      return asked;
    };
    await expect.poll(scroll).toBe(2);
    await page.getByRole('alert').first().waitFor();
    await page.waitForTimeout(1000);
    expect(asked).toBe(2);
    await page.unroute(pages);
  });

  test('lists the transfers of an account to the end, filters them and saves what is shown', async () => {
    const { page } = browsing;
    await open(`/account/${account}`);
    await page.getByRole('link', { name: 'Transfers', exact: true }).click();
    const { count } = await api(`/api/transfers/?account=${account}&limit=1`, transfers);
    await expect.poll(async () => await figure('count').textContent()).toContain(countText(count));
    const rows = main().locator('tbody tr');
    await expect.poll(async () => await rows.count()).toBe(50);
    await browsing.check('transfers');
    await page.setViewportSize(WIDTHS.narrow);
    const table = page.getByRole('region', { name: 'Transfers of the account' });
    const seen = (await table.boundingBox()) ?? { x: 0, width: 0 };
    for (const amount of await rows.locator('td.number button.copy').all()) {
      const { x, width } = (await amount.boundingBox()) ?? { x: Infinity, width: 0 };
      expect(x + width, 'the amount is cut').toBeLessThanOrEqual(seen.x + seen.width);
    }
    await page.setViewportSize(WIDTHS.wide);
    const toEnd = async () => await page.evaluate('scrollTo(0, document.body.scrollHeight)');
    // A page that is not answered before the filters change.
    const further = /\/api\/transfers\/\?.*cursor=/;
    await page.route(further, () => {});
    const [aborted, asked] = [page.waitForEvent('requestfailed'), page.waitForRequest(further)];
    await toEnd();
    await asked;
    await page.getByLabel('From').fill('2000-01-01T00:00');
    expect((await aborted).url()).toMatch(further);
    await page.unroute(further);
    await page.getByLabel('From').fill('');
    await expect.poll(async () => await rows.count()).toBe(50);
    await toEnd();
    await expect.poll(async () => await rows.count()).toBeGreaterThan(50);

    await page.getByLabel('Direction').selectOption('in');
    const into = await api(`/api/transfers/?to_account=${account}&limit=50`, transfers);
    await expect.poll(async () => await figure('count').textContent()).toContain(countText(into.count));
    await expect.poll(async () => await rows.count()).toBe(Math.min(50, into.count));
    const saving = page.waitForEvent('download');
    await page.getByRole('button', { name: /^CSV/ }).click();
    const saved = z
      .array(z.object({ transaction: z.string(), to: z.string() }))
      .parse(parse(readFileSync(await (await saving).path(), 'utf8'), { columns: true }));
    expect(saved.map(({ transaction }) => transaction)).toEqual(into.results.map(({ txhash }) => txhash));
    expect(new Set(saved.map(({ to }) => to))).toEqual(new Set([account]));
  });

  test('copies the exact amount', async () => {
    const { page } = browsing;
    const amount = main().locator('td.number button.copy').first();
    const full = (await amount.getAttribute('title'))?.split(' ')[0] ?? '';
    await amount.click();
    await expect
      .poll(async () => await page.evaluate('navigator.clipboard.readText()'))
      .toBe(full.replaceAll(',', ''));
  });

  test('shows the NFTs of an account, with images of the gateway', async () => {
    const { page } = browsing;
    await open(`/account/${account}?view=nfts`);
    const { count } = await api(`/api/nft/owned-by/?account_address=${account}`, owned);
    await expect.poll(async () => await figure('count').textContent()).toBe(countText(count));
    await expect.poll(async () => await page.locator('.card').count()).toBe(Math.min(24, count));
    await browsing.check('nfts');
  });

  test('draws the counterparties of an account, and theirs by the keyboard', async () => {
    const { page } = browsing;
    await open(`/account/${account}`);
    await page.getByRole('link', { name: 'Counterparties' }).click();
    await main().getByLabel('Token').selectOption(ETH);
    const { count, results } = await api(
      `/api/transfers/?account=${account}&token=${ETH}&limit=100`,
      transfers,
    );
    expect(count).toBeLessThanOrEqual(100);
    const amounts = new Map<string, bigint>();
    for (const { from_address: from, to_address: to, value, is_fee } of results) {
      const other = from === account ? to : from;
      if (!is_fee && from !== to) amounts.set(other, (amounts.get(other) ?? 0n) + BigInt(value));
    }
    const largest = [...amounts].toSorted(([, a], [, b]) => (a < b ? 1 : -1)).slice(0, 20);
    expect(largest.length).toBeGreaterThan(1);
    const shown = async (): Promise<(string | null)[]> =>
      await Promise.all(
        (await main().locator('tbody .hex a').all()).map(async (link) => await link.getAttribute('title')),
      );
    await expect.poll(shown).toEqual(largest.map(([other]) => other));
    const nodes = page.locator('.graph .node');
    await expect.poll(async () => await nodes.count()).toBe(1 + largest.length);
    await browsing.check('counterparties');

    const other = nodes.nth(1);
    await other.focus();
    await page.keyboard.press('Enter');
    await expect.poll(async () => await other.getAttribute('aria-expanded')).toBe('true');
    await expect.poll(async () => await nodes.count()).toBeGreaterThan(1 + largest.length);
    await expect.poll(shown).toContain(account);
    // The keyboard stays where it was.
    expect(await page.evaluate('document.activeElement?.getAttribute("aria-label")')).toBe(
      await other.getAttribute('aria-label'),
    );
    await page.setViewportSize(WIDTHS.narrow);
    const drawn = (await page.getByRole('region', { name: 'Graph of counterparties' }).boundingBox()) ?? {
      height: Infinity,
    };
    expect(drawn.height, 'the graph fits the screen').toBeLessThanOrEqual(0.75 * WIDTHS.narrow.height);
    await browsing.check('counterparties-expanded');
    await page.keyboard.press(' ');
    await expect.poll(async () => await nodes.count()).toBe(1 + largest.length);
  });

  test('shows the price and the transfers of a token', async () => {
    const token = await api(`/api/tokens/${STRK}/`, z.object({ current_price_usd: z.string() }));
    await open(`/token/${STRK}`);
    await expect
      .poll(async () => await figure('price').getByRole('button').getAttribute('title'))
      .toContain(`${usdText(token.current_price_usd)} `);
    await browsing.page.locator('.plot canvas').first().waitFor();
    expect(
      await browsing.page
        .getByRole('region', { name: 'Newest transfers of the token' })
        .locator('tbody tr')
        .count(),
    ).toBe(50);
    await browsing.check('token');
  });

  test('shows the holders of a token, and its volume by hour', async () => {
    const { page } = browsing;
    const holders = z.object({
      count: z.number(),
      results: z.array(z.object({ account_address: z.string() })),
    });
    const { results, count } = await api(`/api/tokens/${STRK}/holders/?limit=40`, holders);
    // The chain goes on meanwhile.
    await expect
      .poll(async () => Number((await figure('holders').textContent())?.replaceAll(',', '')))
      .toBeGreaterThanOrEqual(count);
    const rows = page.getByRole('region', { name: 'Holders' }).locator('tbody tr');
    await expect.poll(async () => await rows.count()).toBe(20);
    await page.getByRole('button', { name: 'More holders' }).click();
    await expect.poll(async () => await rows.count()).toBe(Math.min(40, results.length));
    const hours = z.object({ results: z.array(z.object({ transfers: z.number(), volume: z.string() })) });
    const { results: periods } = await api(`/api/tokens/${STRK}/stats/?interval=1%20hour`, hours);
    const label = await page.getByRole('img', { name: /^Transfers: / }).getAttribute('aria-label');
    expect(label).toContain(`${periods.length} points`);
    // Sums of whole weeks: at most two, as the chain has run for less than a day.
    await page.getByLabel('Interval').selectOption('1 week');
    const volumes = page.getByRole('img', { name: /^Volume: / });
    await expect.poll(async () => await volumes.getAttribute('aria-label')).toMatch(/: [12] points/);
    const { results: days } = await api(
      `/api/tokens/${STRK}/stats/?interval=1%20day`,
      z.object({ results: z.array(z.object({ time: z.string(), volume: z.string() })) }),
    );
    const mondayOf = (time: string): number => Math.floor((Date.parse(time) / 86_400_000 + 3) / 7);
    const newest = Math.max(...days.map(({ time }) => mondayOf(time)));
    const volume = days
      .filter(({ time }) => mondayOf(time) === newest)
      .reduce((sum, day) => sum + BigInt(day.volume), 0n);
    expect(await volumes.getAttribute('aria-label')).toContain(`newest ${amountText(volume, 18)} STRK`);
  });

  test('leaves no gap under more live transfers than it keeps, and counts them all', async () => {
    const { page } = browsing;
    // The list is first read as of an old block, so that the stream sends all that came since.
    const asOf = 'as_of_block=10';
    await page.route(
      /\/api\/transfers\//,
      async (route) => await route.continue({ url: `${route.request().url()}&${asOf}` }),
      { times: 1 },
    );
    const old = await api(`/api/transfers/?token=${STRK}&limit=1&${asOf}`, transfers);
    const { count } = await api(`/api/transfers/?token=${STRK}&limit=1`, transfers);
    expect(count - old.count).toBeGreaterThan(500);
    await open(`/token/${STRK}`);
    await expect.poll(async () => await figure('transfers').textContent()).toBe(countText(count));
    await expectNewestTransfers(STRK);
  });

  test('counts the transfers of a block that was listed before it was counted', async () => {
    const { page } = browsing;
    const { count } = await api(`/api/transfers/?token=${STRK}&limit=1`, transfers);
    const uncounted = async (route: Route): Promise<void> => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), count: count - 5 } });
    };
    await page.route(/\/api\/transfers\//, uncounted, { times: 1 });
    await page.reload();
    await expect.poll(async () => await figure('transfers').textContent()).toBe(countText(count));
    await expectNewestTransfers(STRK);
  });

  test.each([
    { when: 'after the stream has begun', isStreamLate: false },
    { when: 'before the stream has begun', isStreamLate: true },
  ])('drops the listed transfers of a block that is reverted $when', async ({ isStreamLate }) => {
    const { page } = browsing;
    const newest = async () => await api(`/api/transfers/?token=${STRK}&limit=1`, transfers);
    const headBlock = async () => (await api('/api/indexer/progress/', progress)).totals.latest_block_overall;
    // A block is listed before it is counted.
    await eventually(async () => expect(await headBlock()).toBe((await newest()).results[0]?.block));
    const stream = /\/api\/stream\/transfers\//;
    const reverted = Promise.withResolvers<void>();
    if (isStreamLate)
      await page.route(
        stream,
        async (route) => {
          await reverted.promise;
          await route.continue();
        },
        { times: 1 },
      );
    const streaming = isStreamLate ? page.waitForRequest(stream) : page.waitForResponse(stream);
    await page.reload();
    await streaming;
    await expectNewestTransfers(STRK);
    const head = await headBlock();
    const shown = await figure('transfers').textContent();
    world.node.control({ command: 'reorg', depth: 2, length: 1, force: true });
    await eventually(async () => expect((await newest()).results[0]?.block).toBe(head - 1));
    if (isStreamLate) expect(await figure('transfers').textContent()).toBe(shown);
    reverted.resolve();
    await eventually(async () =>
      expect(await figure('transfers').textContent()).toBe(countText((await newest()).count)),
    );
    expect(await figure('transfers').textContent()).not.toBe(shown);
    await expectNewestTransfers(STRK);
    world.node.control({ command: 'advance', blocks: 1 });
    await main()
      .getByRole('link', { name: countText(head), exact: true })
      .first()
      .waitFor();
    await expectNewestTransfers(STRK);
  });

  test('creates a key, which works until it is deleted', async () => {
    const { page } = browsing;
    await page.getByRole('link', { name: 'API keys' }).click();
    await page.getByLabel('Name').fill(corpus[1] ?? '');
    await page.getByLabel('Allowed IP addresses').fill('nowhere');
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByText('Enter an IP address or a network in CIDR notation.').first().waitFor();
    await page.getByLabel('Allowed IP addresses').fill('127.0.0.0/8, ::1');
    await page.getByRole('button', { name: 'Create key' }).click();
    const key = (await page.locator('.secret code').textContent()) ?? '';
    await browsing.check('keys');
    const use = async (): Promise<number> =>
      (await world.service.get('/api/indexer/progress/', { 'api-key': key })).status;
    expect(await use()).toBe(200);
    await page.getByRole('button', { name: 'I have kept it' }).click();
    expect(await page.content()).not.toContain(key);
    expect((await world.service.get('/api/price/', { 'api-key': key })).status).toBe(400);
    const ids = z.array(z.object({ id: z.number(), name: z.string() }));
    const listed = ids.parse(await sessionCall('/api/users/auth/api-keys/'));
    const id = listed.find(({ name }) => name === corpus[1])?.id;
    const counted = z.object({
      total_calls: z.number(),
      data: z.array(z.object({ calls: z.number(), successful_calls: z.number() })),
    });
    const usage = async () => counted.parse(await sessionCall(`/api/users/auth/api-keys/${id}/usage/`));
    await expect.poll(async () => (await usage()).total_calls).toBe(2);
    await page.getByRole('button', { name: `Usage of ${corpus[1]}` }).click();
    await expect.poll(async () => await figure('calls').textContent()).toBe('2');
    const { data } = await usage();
    const busiest = data.toSorted((a, b) => b.calls - a.calls)[0];
    expect(data.reduce((sum, hour) => sum + hour.successful_calls, 0)).toBe(1);
    const bars = page.getByRole('img', { name: /^Calls an hour: / });
    expect(await bars.getAttribute('aria-label')).toMatch(
      new RegExp(`highest ${busiest?.calls} calls?, ${busiest?.successful_calls} successful$`),
    );

    const path = `/api/users/auth/api-keys/${id}/`;
    const expires_at = '2040-01-02T03:04:05.678Z';
    const set = await fetch(`${world.service.baseUrl}${path}`, {
      method: 'PATCH',
      headers: { authorization: `Bearer ${await sessionToken()}`, 'content-type': 'application/json' },
      body: JSON.stringify({ expires_at }),
    });
    expect(set.status).toBe(200);
    const edit = page.getByRole('region', { name: `Edit “${corpus[1]}”` });
    await page.getByRole('button', { name: `Edit ${corpus[1]}` }).click();
    const addresses = edit.getByLabel('Allowed IP addresses');
    const save = edit.getByRole('button', { name: 'Save' });
    await addresses.fill('nowhere');
    await save.click();
    await edit.getByText('Enter an IP address or a network in CIDR notation.').first().waitFor();
    expect(await addresses.inputValue()).toBe('nowhere');
    await browsing.check('key-edit');
    await addresses.fill('203.0.113.0/24 ::1');
    await save.click();
    await edit.waitFor({ state: 'detached' });
    const restrictions = {
      allowed_origins: [],
      allowed_ips: ['203.0.113.0/24', '::1'],
      rate_limit_per_hour: null,
    };
    // The form shows minutes: a time that was not touched keeps its seconds.
    expect(await sessionCall(path)).toMatchObject({ name: corpus[1], ...restrictions, expires_at });
    await page.getByRole('button', { name: `Edit ${corpus[1]}` }).click();
    await edit.getByLabel('Expires').fill('2041-01-02T03:04');
    await save.click();
    await edit.waitFor({ state: 'detached' });
    const later = new Date('2041-01-02T03:04').toISOString();
    expect(await sessionCall(path)).toMatchObject({ ...restrictions, expires_at: later });
    expect(await use()).toBe(403);
    page.once('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: `Delete ${corpus[1]}` }).click();
    await expect.poll(async () => await main().locator('tbody tr').count()).toBe(1);
    expect(await use()).toBe(401);
  });

  test('sends an undecided request again with the same Idempotency-Key', async () => {
    const { page } = browsing;
    await open('/keys');
    const sent: (string | null)[] = [];
    const answers = {
      // Longer than the client waits before it repeats a request by itself.
      undecided: { status: 503, headers: { 'retry-after': '60' }, json: { code: 'command_timeout' } },
      refused: { status: 400, json: { code: 'invalid', errors: { name: ['Not now.'] } } },
      made: { status: 201, json: { key: 'of a simulated answer' } },
    };
    let answer: keyof typeof answers = 'undecided';
    await page.route('/api/users/auth/create-api-key/', async (route) => {
      sent.push(await route.request().headerValue('idempotency-key'));
      await route.fulfill(answers[answer]);
    });
    const create = async (name: string): Promise<string | null> => {
      const before = sent.length;
      await page.getByLabel('Name').fill(name);
      await page.getByRole('button', { name: 'Create key' }).click();
      await expect.poll(() => sent.length).toBe(before + 1);
      // Until then a click does nothing.
      await page.getByRole('button', { name: 'Create key', disabled: false }).waitFor();
      return sent.at(-1) ?? null;
    };
    const first = await create('one');
    await page.getByText('code command_timeout').waitFor();
    expect(first).toMatch(/^[0-9a-f]{32}$/);
    expect(await create('one')).toBe(first);
    const other = await create('two');
    expect(other).not.toBe(first);
    // The first attempt may still be made, whatever a later one is told.
    answer = 'refused';
    expect(await create('two')).toBe(other);
    answer = 'made';
    expect(await create('two')).toBe(other);
    await page.locator('.secret code').waitFor();
    expect(await create('two')).not.toBe(other);
    await page.unroute('/api/users/auth/create-api-key/');
  });

  test('keeps what is shown when a poll fails, and shows why', async () => {
    const { page } = browsing;
    await open('/operations');
    await figure('indexed').waitFor();
    let hasVanished = false;
    await page.exposeFunction('vanished', () => (hasVanished = true));
    await page.evaluate(`new MutationObserver(() => {
      if (document.querySelector('[data-figure="indexed"]') === null) vanished();
    }).observe(document.querySelector('main'), { childList: true, subtree: true })`);
    await page.route('/api/admin/pipeline/', async (route) => await route.fulfill({ status: 500, json: {} }));
    const alert = page.getByRole('alert').filter({ hasText: 'Status 500' });
    await alert.waitFor();
    expect(await figure('indexed').isVisible()).toBe(true);
    await page.unroute('/api/admin/pipeline/');
    await alert.waitFor({ state: 'detached' });
    expect(hasVanished).toBe(false);
  });

  test('creates a webhook, sends a test and shows its delivery', async () => {
    const { page } = browsing;
    // As in a page that came by plain HTTP from another machine.
    await page.evaluate('delete Crypto.prototype.randomUUID');
    await page.getByRole('link', { name: 'Webhooks' }).click();
    const name = corpus[2] ?? '';
    await page.getByLabel('Name').fill(name);
    await page.getByLabel('URL').fill(`http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`);
    const preview = page.getByRole('region', { name: 'Example of transfer.created' });
    await page.getByLabel('Token', { exact: true }).fill('0x7777');
    expect(JSON.parse((await preview.textContent()) ?? '')).toMatchObject({
      event: 'transfer.created',
      data: { token_address: `0x${'7777'.padStart(64, '0')}` },
    });
    await page.getByLabel('Token', { exact: true }).fill('');
    await page.getByRole('button', { name: 'Create webhook' }).click();
    await page.locator('.secret code').waitFor();
    await browsing.check('webhooks');
    const known = z.array(z.object({ name: z.string(), subscriptions: z.array(z.unknown()) }));
    const made = known.parse(await sessionCall('/api/webhooks/')).find((webhook) => webhook.name === name);
    // Of any token and account.
    expect(made?.subscriptions).toEqual([expect.objectContaining({ token: '', address: '' })]);
    await page.getByRole('link', { name }).click();
    received = [];
    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.locator('.deliveries .tag.good').waitFor();
    expect(received).toEqual(['/hook']);
    await page.locator('.deliveries summary').click();
    await page.getByRole('region', { name: 'Response' }).getByText('thanks').waitFor();
    await browsing.check('webhook');
  });

  test('shows how the deliveries went, and retries those that failed', async () => {
    const { page } = browsing;
    await expect.poll(async () => await figure('success-rate').textContent()).toBe('100.0 %');
    isReceiverBroken = true;
    for (const failed of [1, 2]) {
      await page.getByRole('button', { name: 'Send a test' }).click();
      await expect.poll(async () => await page.locator('.deliveries .tag.bad').count()).toBe(failed);
    }
    await expect.poll(async () => await figure('failed').textContent()).toBe('2');
    await expect.poll(async () => await figure('success-rate').textContent()).toBe('33.3 %');
    await expect.poll(async () => await page.locator('.plot canvas').count()).toBe(2);
    await browsing.check('webhook-failed');
    isReceiverBroken = false;
    received = [];
    page.once('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: 'Retry all failed' }).click();
    await page.getByText('2 attempts requested').waitFor();
    await expect.poll(async () => await figure('failed').textContent()).toBe('0');
    await expect.poll(async () => await figure('success-rate').textContent()).toBe('100.0 %');
    expect(received).toEqual(['/hook', '/hook']);
    await expect.poll(async () => await page.locator('.deliveries .tag.good').count()).toBe(3);
  });

  test('shows admins the pipeline, and that a projector has stopped', async () => {
    const { page } = browsing;
    await page.getByRole('link', { name: 'Operations' }).click();
    const { totals } = await api('/api/indexer/progress/', progress);
    const indexed = countText(totals.latest_block_overall);
    await expect.poll(async () => await figure('indexed').textContent()).toBe(indexed);
    await page.getByRole('region', { name: 'Chunks' }).getByText('live').waitFor();
    const known = z.object({ stages: z.array(z.object({ name: z.string(), kind: z.string() })) });
    const { stages: all } = known.parse(await sessionCall('/api/admin/pipeline/'));
    const steps = page.getByRole('list', { name: 'Stages of the pipeline' }).locator('.step');
    await expect.poll(async () => await steps.count()).toBe(all.length);
    for (const { name } of all.filter(({ kind }) => kind === 'projection'))
      await steps.getByText(name, { exact: true }).waitFor();
    await browsing.check('operations');
    const stages = page.getByRole('list', { name: 'Stages of the pipeline' });
    const project = world.service.pids()['project'] ?? 0;
    process.kill(project, 'SIGSTOP');
    try {
      await stages.getByText('silent').first().waitFor();
    } finally {
      process.kill(project, 'SIGCONT');
    }
    await expect.poll(async () => await stages.getByText('silent').count()).toBe(0);
  });

  test('shows within 5 s that one of two API processes has stopped', async () => {
    const { page } = browsing;
    const second = spawnRole('api', {
      ...world.settings(),
      PORT: String(await freePort()),
      LOG_LEVEL: 'warn',
    });
    try {
      await second.ready;
      const processes = page
        .getByRole('region', { name: 'Roles and their processes' })
        .getByRole('row', { name: /^api/ });
      await expect.poll(async () => await processes.getByText('live').count()).toBe(2);
      second.signal('SIGTERM');
      await second.ended;
      await processes.getByText('stopped').waitFor({ timeout: 5000 });
      await expect.poll(async () => await processes.getByText('live').count()).toBe(1);
      const seen = z.object({
        roles: z.array(z.object({ name: z.string(), processes: z.array(z.object({ state: z.string() })) })),
      });
      const { roles } = seen.parse(await sessionCall('/api/admin/pipeline/'));
      const states = roles.find(({ name }) => name === 'api')?.processes.map(({ state }) => state);
      expect(states?.toSorted()).toEqual(['live', 'stopped']);
    } finally {
      await second.stop();
    }
  });

  test('starts a rebuild and watches it to its end', async () => {
    const { page } = browsing;
    await page.getByRole('link', { name: 'Projections' }).click();
    page.once('dialog', (dialog) => void dialog.accept());
    await page.getByRole('button', { name: 'Rebuild tx-index' }).click();
    const run = page.getByRole('region', { name: 'Rebuild of tx-index' });
    await run.getByText('finished').waitFor({ timeout: 120_000 });
    await run.getByText('swapped').waitFor();
    await run.getByText('0 differences').waitFor();
    await browsing.check('projections');
  });

  test('aborts a rebuild', async () => {
    const { page } = browsing;
    const shape = z.object({
      results: z.array(
        z.object({
          name: z.string(),
          builds: z.array(z.object({ build: z.number(), state: z.string() })),
          rebuild: z
            .object({ state: z.string(), is_swapped: z.boolean(), updated_at: z.string() })
            .nullable(),
        }),
      ),
    });
    const shown = async () =>
      shape
        .parse(await sessionCall('/api/admin/projections/'))
        .results.find(({ name }) => name === 'account-ledger');
    const served = (await shown())?.builds.find(({ state }) => state === 'serving');
    const client = await world.inspected.pool.connect();
    try {
      // The rebuild waits here, where it would begin, so that there is time to abort it.
      await client.query('BEGIN');
      await client.query('LOCK TABLE tds.builds IN SHARE MODE');
      page.once('dialog', (dialog) => void dialog.accept());
      await page.getByRole('button', { name: 'Rebuild account-ledger' }).click();
      const run = page.getByRole('region', { name: 'Rebuild of account-ledger' });
      await run.getByRole('button', { name: 'Abort' }).click();
      await run.getByText('Aborting…').waitFor();
      const asked = (await shown())?.rebuild?.updated_at;
      await expect.poll(async () => (await shown())?.rebuild?.updated_at).not.toBe(asked);
      await client.query('ROLLBACK');
      await run.getByText('aborted', { exact: true }).waitFor({ timeout: 60_000 });
      await run.getByText('not swapped').waitFor();
    } finally {
      client.release(true);
    }
    const { builds = [], rebuild } = (await shown()) ?? {};
    expect(rebuild).toMatchObject({ state: 'aborted', is_swapped: false });
    expect(builds.filter(({ state }) => state === 'serving')).toEqual([served]);
  });

  test('inspects a quarantined event, and retries and skips it', async () => {
    const { page } = browsing;
    await page.getByRole('link', { name: 'Quarantine' }).click();
    const ids = async (): Promise<string[]> => {
      const list = z.object({ results: z.array(z.object({ id: z.string() })) });
      return list.parse(await sessionCall('/api/admin/quarantine/?limit=100')).results.map(({ id }) => id);
    };
    const all = await ids();
    expect(all.length).toBeGreaterThan(1);
    await expect.poll(async () => await figure('count').textContent()).toBe(countText(all.length));
    const entry = page.locator('.deliveries > li').first();
    await entry.locator('summary').click();
    await page.getByRole('region', { name: 'Raw event' }).waitFor();
    await browsing.check('quarantine');
    await entry.getByRole('button', { name: 'Retry', exact: true }).click();
    await entry.locator('[role=status], [role=alert]').first().waitFor();
    page.once('dialog', (dialog) => void dialog.accept());
    await entry.getByRole('button', { name: 'Skip', exact: true }).click();
    await expect.poll(ids).toEqual(all.slice(1));
    const views = page.getByRole('navigation', { name: 'Views of operations' });
    await views.getByRole('link', { name: 'Verification' }).click();
    await page.getByRole('heading', { name: 'Sampling' }).waitFor();
    await page.getByRole('button', { name: 'Verify', exact: true }).click();
    const runs = page.getByRole('region', { name: 'Verifications' }).locator('tbody tr');
    await runs.getByText('no differences').waitFor();
    // The process that verified records what it found before it ends.
    await expect
      .poll(async () => await main().getByRole('status').textContent())
      .toMatch(/^done .* no difference\.$/);
    await browsing.check('verification');
  });

  test('shows how much of the index is verified, also of a block', async () => {
    const { page } = browsing;
    const main = page.getByRole('navigation', { name: 'Main' });
    await main.getByRole('link', { name: 'Verification' }).click();
    const { heights, quarantined } = await api('/api/verification/', verification);
    const commitments = page.getByRole('region', { name: 'Event commitments' });
    await expect
      .poll(async () => await commitments.getByRole('row', { name: 'Not compared' }).textContent())
      .toContain(countText(heights.reasons.not_checked));
    expect(heights.verified + heights.unverifiable).toBe((heights.last ?? 0) - (heights.first ?? 0) + 1);
    await expect.poll(async () => await figure('verified').textContent()).toBe(countText(heights.verified));
    await expect
      .poll(async () => await figure('quarantined').textContent())
      .toBe(countText(quarantined.events));
    await page
      .getByRole('region', { name: 'Conservation' })
      .getByText('sum to zero up to block')
      .waitFor({ timeout: 60_000 });
    await browsing.check('public verification');
    await searchFor('1');
    await page.getByRole('heading', { name: 'Block 1' }).waitFor();
    const { event_check: outcome } = await api('/api/blocks/1/', z.object({ event_check: z.string() }));
    await expect.poll(async () => await figure('event-check').textContent()).toBe(EVENT_CHECKS[outcome]);
  });

  test('has no operations for others', async () => {
    const { page } = browsing;
    const reader = { username: 'reader', password: 'only reads what all may' };
    const adding = promisify(execFile)(
      process.execPath,
      ['infra/bin/tds.ts', 'users', 'add', reader.username],
      {
        env: { PATH: process.env['PATH'], ...world.settings() },
      },
    );
    adding.child.stdin?.end(`${reader.password}\n`);
    await adding;
    await page.getByRole('button', { name: 'Log out' }).click();
    const refused = page.waitForResponse(/api\/admin/);
    await logIn({ ...world.service.demo, ...reader });
    expect((await refused).status()).toBe(403);
    await page.getByRole('link', { name: 'Webhooks' }).waitFor();
    expect(await page.getByRole('link', { name: 'Operations' }).count()).toBe(0);
    for (const view of ['', '?view=projections', '?view=quarantine', '?view=verification']) {
      await open(`/operations${view}`);
      await page.getByRole('alert').first().waitFor();
      expect(await main().locator('table, .pipeline').count()).toBe(0);
    }
    await open('/webhooks');
    await expect.poll(async () => await figure('count').textContent()).toBe('0');
    await page.getByRole('button', { name: 'Log out' }).click();
    await logIn();
    await page.getByRole('link', { name: 'Operations' }).waitFor();
  });

  test('shows the API reference of the service itself', async () => {
    const { page } = browsing;
    await page.getByRole('link', { name: 'API reference' }).click();
    await page.getByText('Account and keys').first().waitFor();
    await browsing.check('reference');
    await open('/');
    await open('/docs#?route=get-/api/price/');
    const samples = page.locator('.code-sample-wrapper code');
    await samples.first().waitFor();
    const source = (await samples.first().textContent()) ?? '';
    const [command = ''] = /curl [\s\S]*"/.exec(source) ?? [];
    const { stdout } = await promisify(execFile)(
      'sh',
      ['-c', command.replace(/^curl/, 'curl --silent --fail')],
      { env: { PATH: process.env['PATH'], TDS_KEY: world.service.demo.api_key } },
    );
    expect(JSON.parse(stdout)).toMatchObject({ success: true, data: { token_address: ETH } });
    await expect.poll(async () => await page.locator('.code-sample-wrapper').count()).toBe(3);
    const shown = page.locator('api-response');
    await shown.getByText('"price_usd"').first().waitFor();
    await page.getByText('Successful calls of an API key in 60 minutes').first().waitFor();
    await browsing.check('reference-operation');
    await shown.getByRole('button', { name: '403' }).click();
    const errors = shown.getByLabel('response body example').filter({ visible: true }).locator('option');
    await expect
      .poll(async () => (await errors.allTextContents()).map((text) => text.trim()))
      .toEqual(['permission_denied', 'rate_limited']);
    await browsing.check('reference-error');
    await open('/');
    await open('/docs#?route=get-/api/indexer/progress/');
    const tried = page.waitForResponse(/api\/indexer\/progress/);
    await page.getByRole('button', { name: 'Execute' }).first().click();
    expect((await tried).status()).toBe(200);
    await page.getByText('latest_block_overall').first().waitFor();
    await open('/');
  });

  test('runs nothing that is written in names, symbols and links', async () => {
    const { page } = browsing;
    const publisher = world.inspected.kafka.publisher();
    const observed = { v: 1 as const, observed_at: Date.now() };
    const held = await api(`/api/nft/owned-by/?account_address=${account}`, owned);
    const nfts = held.data.slice(0, images.length);
    await publisher.publish(topics.tokens, [
      {
        key: ETH,
        value: topics.tokens.schema.parse({
          ...observed,
          type: 'token.described',
          token: ETH,
          standard: 'erc20',
          class_hash: null,
          name: corpus[0],
          symbol: corpus[1],
          decimals: 18,
          block: 0,
        }),
      },
      ...corpus.map((text, i) => {
        const token = `0x${(4096 + i).toString(16).padStart(64, '0')}`;
        const described = {
          type: 'token.described',
          standard: 'erc20',
          class_hash: null,
          decimals: 18,
          block: 0,
        };
        const value = { ...observed, ...described, token, name: `evil ${text}`, symbol: text };
        return { key: token, value: topics.tokens.schema.parse(value) };
      }),
      // One logo is of the gateway, which alone may be shown.
      ...[...images, `${gateway.url}/ipfs/${'Q'.repeat(46)}/foxes/1.svg`].map((logo, i) => {
        const token = `0x${(4096 + i).toString(16).padStart(64, '0')}`;
        const value = { ...observed, type: 'token.listed', token, logo };
        return { key: token, value: topics.tokens.schema.parse(value) };
      }),
    ]);
    await publisher.publish(
      topics.nft,
      nfts.map(({ token_address: token, nft_token_id: id }, i) => ({
        key: `${token}:${id}`,
        value: topics.nft.schema.parse({
          ...observed,
          type: 'nft.metadata_fetched',
          token,
          token_id: id,
          uri: 'ipfs://x',
          name: `evil ${corpus[i]}`,
          description: corpus[i],
          image: images[i],
          external_url: images[i],
          animation_url: images[i],
          attributes: [{ trait_type: corpus[i], value: corpus[i] }],
        }),
      })),
    );
    await publisher.close();
    await expect
      .poll(async () => (await world.service.get('/api/tokens/?search=evil')).json)
      .toMatchObject({ count: corpus.length });
    await open('/search?q=evil');
    const logos = async (): Promise<(string | null)[]> =>
      await Promise.all((await main().locator('img.logo').all()).map((image) => image.getAttribute('src')));
    await expect.poll(logos).toEqual(expect.arrayContaining([expect.stringMatching(/foxes\/1\.svg$/)]));
    for (const src of await logos()) expect(src).toMatch(/^(data:image\/|http:\/\/127\.0\.0\.1:)/);
    const screens = [
      '/search?q=evil',
      `/search?q=${encodeURIComponent(corpus[1] ?? '')}`,
      `/token/${ETH}`,
      `/token/0x${(4096).toString(16).padStart(64, '0')}`,
      `/account/${account}`,
      `/account/${account}?view=transfers`,
      `/account/${account}?view=nfts`,
      '/webhooks',
      '/operations?view=quarantine',
      '/verification',
      '/',
    ];
    for (const screen of screens) {
      await open(screen);
      if (screen === '/search?q=evil')
        await expect.poll(async () => await main().locator('tbody tr').count()).toBe(corpus.length);
      if (screen.endsWith('nfts')) {
        await expect
          .poll(async () => await page.locator('.card', { hasText: 'evil' }).count())
          .toBe(nfts.length);
        await browsing.check('nfts-hostile');
      }
      await page
        .locator('main bdi')
        .first()
        .hover({ timeout: 2000 })
        .catch(() => {});
      expect(await browsing.problems(), screen).toEqual([]);
    }
  });

  test('changes nothing for another site', async () => {
    const { page } = browsing;
    const site = createServer((_request, response) => {
      response.setHeader('content-type', 'text/html');
      response.end(`<form method="post" enctype="text/plain" action="${world.service.baseUrl}/api/users/auth/create-api-key/">
        <input name='{"name":"stolen","x":"' value='"}'></form><script>document.forms[0].submit()</script>`);
    });
    await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
    const answered = page.waitForResponse(/create-api-key/);
    await page.goto(`http://127.0.0.1:${(site.address() as AddressInfo).port}/`);
    expect((await answered).status()).toBe(401);
    site.close();
    await open('/keys');
    await expect.poll(async () => await figure('count').textContent()).toBe('1');
  });

  test('asks for the log-in when the session ends while a screen is live', async () => {
    const { page } = browsing;
    await open('/');
    await page.getByRole('region', { name: 'Newest blocks' }).locator('tbody tr').first().waitFor();
    const { status } = await fetch(`${world.service.baseUrl}/api/users/auth/logout/`, {
      method: 'POST',
      headers: { authorization: `Bearer ${await sessionToken()}` },
    });
    expect(status).toBeLessThan(300);
    await page.getByRole('heading', { name: 'Log in' }).waitFor();
    await logIn();
    await page.getByRole('heading', { name: 'Token transfers on Starknet' }).waitFor();
  });

  test('keeps the session of a tab when that of another tab is rejected', async () => {
    const other = await browsing.page.context().newPage();
    await other.goto('/favicon.svg');
    const old = { token: 'old', expiresAt: '2100-01-01T00:00:00Z', username: 'demo' };
    await other.evaluate(`sessionStorage.setItem('session', '${JSON.stringify(old)}')`);
    await other.goto('/keys');
    await other.getByRole('heading', { name: 'Log in' }).waitFor();
    // It asks the first tab for its session.
    await other.reload();
    await other.getByRole('heading', { name: 'API keys' }).waitFor();
    await other.close();
  });

  test('ends the session at log-out, also at the service', async () => {
    const { page } = browsing;
    const token = await sessionToken();
    const keys = async (): Promise<number> =>
      (await world.service.get('/api/users/auth/api-keys/', { authorization: `Bearer ${token}` })).status;
    expect(await keys()).toBe(200);
    // Another tab has the session too, until it ends.
    const other = await page.context().newPage();
    await other.goto('/keys');
    await other.getByRole('heading', { name: 'API keys' }).waitFor();
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByRole('heading', { name: 'Log in' }).waitFor();
    await other.getByRole('heading', { name: 'Log in' }).waitFor();
    await expect.poll(keys).toBe(401);
  });
});
