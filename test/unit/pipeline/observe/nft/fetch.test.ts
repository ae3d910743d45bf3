import { afterAll, expect, it } from 'vitest';

import { createEgress } from '../../../../../pipeline/egress/egress.ts';
import type { Egress } from '../../../../../pipeline/egress/egress.ts';
import { readMetadata } from '../../../../../pipeline/observe/nft/document.ts';
import { GATEWAY, createFetcher } from '../../../../../pipeline/observe/nft/fetch.ts';

const egress = createEgress({ allowNetworks: [], ownPorts: [] });
afterAll(() => egress.close());
const fetcher = createFetcher({
  egress,
  gatewayEgress: egress,
  gateway: 'https://ipfs.example',
  timeoutMs: 1000,
});

it.each([
  // The owner of a domain has all hosts below it; hosts below a private suffix have different owners.
  [['https://a.one.example/1', 'https://b.one.example:8443/2', 'http://one.example'], 'one.example'],
  [['https://anna.github.io/1'], 'anna.github.io'],
  [['https://bert.github.io/1'], 'bert.github.io'],
  // Ports of one address share its slots, and so do addresses of one IPv6 /64.
  [['http://203.0.113.5:21000/1', 'https://203.0.113.5/2', 'http://3405803781:3/'], '203.0.113.5'],
  [['https://[2001:db8::1]/', 'http://[2001:db8:0:0:ffff::2]:99/'], '20010db800000000::/64'],
  [['https://[2001:db8:0:1::1]/'], '20010db800000001::/64'],
  [['ipfs://QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG/1'], GATEWAY],
  [['data:application/json,{}'], null],
] as const)('counts %j as host %j', (uris, host) => {
  for (const uri of uris) expect(fetcher.locate(uri, 1n).host, uri).toBe(host);
});

it.each(['ipfs://bafy/1.png', 'https://images.example/1.png'])(
  'names an image that is its own metadata as the contract does, however large it is: %s',
  async (uri) => {
    const called: string[] = [];
    const answering = {
      async request(url: string) {
        called.push(url);
        const isFirst = called.length === 1;
        return {
          status: isFirst ? 302 : 200,
          headers: isFirst ? { location: '/signed' } : { 'content-type': 'image/png' },
          body: Buffer.from('png'),
          isCut: !isFirst,
        };
      },
    } as unknown as Egress;
    const redirected = createFetcher({
      egress: answering,
      gatewayEgress: answering,
      gateway: 'http://ipfs.internal:8080',
      timeoutMs: 1000,
    });
    const { signal } = new AbortController();
    const body = await redirected.fetch(redirected.locate(uri, 1n), signal);
    expect(called).toHaveLength(2);
    expect(readMetadata(body, 1n).image).toBe(uri);
  },
);
