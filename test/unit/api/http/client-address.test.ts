import { describe, expect, it } from 'vitest';

import { addressBlock, clientAddress } from '../../../../api/http/client-address.ts';
import { parseNetwork } from '../../../../infra/networks.ts';

const networks = (...texts: string[]) => texts.map((text) => parseNetwork(text)!);

describe('clientAddress', () => {
  const trusted = networks('127.0.0.0/8', '10.0.0.0/8', 'fd00::/8');
  it.each([
    // peer, X-Forwarded-For, client
    ['203.0.113.9', undefined, '203.0.113.9'],
    ['203.0.113.9', '198.51.100.1', '203.0.113.9'],
    ['127.0.0.1', undefined, '127.0.0.1'],
    ['127.0.0.1', '198.51.100.1', '198.51.100.1'],
    ['::ffff:127.0.0.1', '198.51.100.1', '198.51.100.1'],
    // What a client wrote itself stands left of what the proxies added.
    ['127.0.0.1', '1.1.1.1, 198.51.100.1', '198.51.100.1'],
    ['127.0.0.1', '1.1.1.1, 198.51.100.1, 10.1.2.3', '198.51.100.1'],
    ['127.0.0.1', '10.9.9.9, 10.1.2.3', '10.9.9.9'],
    ['127.0.0.1', '::ffff:198.51.100.1', '198.51.100.1'],
    ['127.0.0.1', '2001:DB8::1', '2001:db8::1'],
    ['127.0.0.1', '[2001:db8::1]:443', '2001:db8::1'],
    ['127.0.0.1', '198.51.100.1:5555', '198.51.100.1'],
    ['fd00::1', '198.51.100.1', '198.51.100.1'],
    ['127.0.0.1', 'unknown', '127.0.0.1'],
    ['127.0.0.1', '198.51.100.1, garbage, 10.1.2.3', '10.1.2.3'],
    ['127.0.0.1', '198.51.100.1, ', '127.0.0.1'],
    ['127.0.0.1', '1', '127.0.0.1'],
    ['127.0.0.1', '0x7f.1', '127.0.0.1'],
  ])('peer %s with %j is %s', (peer, forwarded, client) => {
    expect(clientAddress(peer, forwarded, trusted)).toBe(client);
  });

  it('trusts no proxy by default', () => {
    expect(clientAddress('127.0.0.1', '198.51.100.1', [])).toBe('127.0.0.1');
  });
});

it.each([
  ['203.0.113.7', '203.0.113.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::ffff', '2001:db8:1:2::/64'],
  ['2001:db8:1:3::ffff', '2001:db8:1:3::/64'],
  ['::1', '0:0:0:0::/64'],
])('failures of %s count for %s', (ip, block) => {
  expect(addressBlock(ip)).toBe(block);
});
