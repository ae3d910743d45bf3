import { afterAll, expect, it } from 'vitest';

import { createEgress } from '../../../../../pipeline/egress/egress.ts';
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
