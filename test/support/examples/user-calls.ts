import { createHash, createHmac, randomBytes } from 'node:crypto';

import { expect } from 'vitest';

import { eventually } from '../service.ts';
import type { SimulatedService } from '../simulated-service.ts';
import type { Asked, Recorder } from './recorder.ts';
import { ETH, hour } from './values.ts';
import type { Json } from './values.ts';

/** Calls of what belongs to users, and of the directory. */

const MAINNET = { network: 'mainnet' };

/** What the catalogue needs besides the entries that an embedded start imports. */
export const CATALOGUE = {
  ads: [
    {
      key: 'swap-banner',
      placement: 'home',
      title: 'Swap without fees',
      target_url: 'https://swap.example.org/',
      cta_text: 'Try it',
    },
  ],
  domains: [
    {
      domain: 'airdrop-claim.example',
      status: 'blacklisted',
      category: 'phishing',
      risk_level: 'high',
      reason: 'Asks for the seed phrase',
    },
    { domain: 'swap.example.org', status: 'whitelisted' },
  ],
};

export async function callAccount({ demo }: SimulatedService['service'], recorder: Recorder): Promise<void> {
  const { ask, refused, useSession } = recorder;
  const { username, password } = demo;
  const logIn = async (): Promise<string> =>
    (await ask('logIn', { body: { username, password } })).json.token;
  await refused('logIn', { body: { username, password: 'wrong' }, status: 401 });
  useSession(await logIn());
  await ask('logOut');
  useSession(await logIn());
  const { json: key } = await ask('createApiKey', {
    body: { name: 'reporting', allowed_origins: ['https://app.example.org'], rate_limit_per_hour: 1 },
    status: 201,
  });
  const from = (origin: string): Pick<Asked, 'query' | 'headers'> => ({
    query: { token_address: ETH },
    headers: { 'api-key': key.key, origin },
  });
  await refused('getPrice', { ...from('https://elsewhere.example.org'), status: 403 });
  await ask('getPrice', from('https://app.example.org'));
  await refused('getPrice', { ...from('https://app.example.org'), status: 403 });
  const path = { id: String(key.id) };
  await ask('getApiKey', { path });
  await ask('updateApiKey', { path, body: { name: 'reports', rate_limit_per_hour: 1000 } });
  await ask('deleteApiKey', { body: { key_id: key.id } });
}

/** The calls of the key so far, which are counted every few seconds. */
export async function callUsage({ ask }: Recorder): Promise<void> {
  const { json: keys } = await ask('listApiKeys');
  await eventually(async () => {
    const { json } = await ask('getApiKeyUsage', { path: { id: String(keys[0].id) } });
    expect(json.data).not.toEqual([]);
  });
}

export async function callWebhooks(
  { ask, refused }: Recorder,
  receiver: { readonly url: string; fail(doesFail: boolean): void },
): Promise<void> {
  const hook = {
    name: 'payments',
    url: receiver.url,
    events: ['transfer.created', 'transfer.reverted'],
    subscriptions: [{ token: ETH }],
  };
  const again = { 'idempotency-key': 'payments-1' };
  const created = await ask('createWebhook', { body: hook, headers: again, status: 201 });
  await refused('createWebhook', { body: { ...hook, name: 'other' }, headers: again, status: 422 });
  const path = { id: String(created.json.id) };
  await ask('listWebhooks');
  await ask('listWebhookEvents');
  await ask('getWebhook', { path });
  const delivered = async (status: string): Promise<Json> =>
    await eventually(async () => {
      const query = { event: 'ping', status };
      const { json } = await ask('listDeliveries', { path, query });
      expect(json.results).not.toEqual([]);
      return json.results[0];
    });
  await ask('testWebhook', { path, status: 202 });
  const { id: done } = await delivered('success');
  receiver.fail(true);
  await ask('testWebhook', { path, status: 202 });
  const { id: failed } = await delivered('failed');
  await ask('getWebhookStats', { path });
  const retried = { start_time: hour(-1), end_time: hour(1) };
  await ask('retryDeliveries', { path, body: retried, status: 202 });
  // The receiver still fails: a delivery that the last call has made due must not succeed before this one.
  await ask('retryDelivery', { path: { ...path, delivery_id: failed }, status: 202 });
  receiver.fail(false);
  await refused('retryDelivery', { path: { ...path, delivery_id: done }, status: 409 });
  await ask('updateWebhook', { path, body: { status: 'paused' } });
  await ask('rotateWebhookSecret', { path, body: { grace_period_seconds: 3600 } });
  await ask('deleteWebhook', { path, status: 204 });
}

export async function callDirectory({ ask }: Recorder): Promise<void> {
  const { json: categories } = await ask('listCategories');
  await ask('getCategory', { path: { slug: categories.results[0].slug } });
  const { json: dapps } = await ask('listDapps', { query: { category: 'dex' } });
  await ask('getDapp', { path: { slug: dapps.results[0].slug } });
  await ask('searchDapps', { query: { q: 'swap' } });
  await ask('discoverDapps');
  await ask('listDappsOfCategory', { path: { slug: 'dex' } });
  const { json: ads } = await ask('listAds', { query: { placement: 'home' } });
  await ask('countAdImpression', { path: { ad_id: String(ads[0].id) }, status: 204 });
  await ask('countAdClick', { path: { ad_id: String(ads[0].id) }, status: 204 });
  const { json: hashes } = await ask('listClassHashes', { query: MAINNET });
  await ask('getClassHash', { path: { id: String(hashes.results[0].id) } });
  await ask('getLatestClassHashes', { query: MAINNET });
  const wallet = { wallet_address: `0x${'0b0b'.padStart(64, '0')}`, ...MAINNET, wallet_type: 'braavos' };
  const { json: registered } = await ask('registerWallet', { body: wallet, status: 201 });
  await ask('registerWallet', { body: wallet });
  const path = { id: String(registered.id) };
  await ask('updateWalletActivity', { path, body: { transaction_count: 7, last_activity_at: hour(0) } });
  await ask('listWallets', { query: MAINNET });
  await ask('getWalletStats', { query: MAINNET });
  await ask('getWallet', { path });
  await ask('findWallet', { query: { wallet_address: wallet.wallet_address } });
  const { json: domains } = await ask('listDomains', { query: { status: 'blacklisted' } });
  await ask('getDomain', { path: { id: String(domains.results[0].id) } });
  await ask('listBlacklistedDomains');
  await ask('listWhitelistedDomains');
  await ask('listDomainChanges');
  await ask('checkDomain', { query: { domain: 'www.airdrop-claim.example' } });
  const report = { domain: 'free-strk.example', category: 'phishing', reason: 'Asks for the seed phrase' };
  const { json: reported } = await ask('reportDomain', { body: report, status: 201 });
  await ask('listDomainReports');
  await ask('getDomainReport', { path: { id: String(reported.id) } });
}

export async function callSync({ ask, refused }: Recorder): Promise<void> {
  const lookupHash = randomBytes(32).toString('hex');
  const authKey = randomBytes(32).toString('hex');
  const timestamp = String(Math.floor(Date.now() / 1000));
  const signed = (...parts: string[]): Pick<Asked, 'headers' | 'path'> => ({
    path: { lookup_hash: lookupHash },
    headers: {
      'X-Vendor-Timestamp': timestamp,
      'X-Vendor-Signature': createHmac('sha256', Buffer.from(authKey, 'hex'))
        .update(parts.join(':'))
        .digest('hex'),
    },
  });
  const blob = Buffer.from('encrypted by the wallet').toString('base64');
  const hash = createHash('sha256').update(blob).digest('hex');
  const write = {
    ...signed('PUT', lookupHash, timestamp, hash),
    body: { blob, version: 1, auth_key: authKey },
  };
  await ask('writeSync', write);
  await refused('writeSync', { ...write, status: 409 }, 'version_conflict');
  await ask('readSync', signed('GET', lookupHash, timestamp));
}
