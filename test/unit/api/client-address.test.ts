import { describe, expect, it } from 'vitest';

import { addressBlock, clientAddress, parseAddress, parseNetwork } from '../../../api/client-address.ts';

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

  it('trusts nobody unless told to', () => {
    expect(clientAddress('127.0.0.1', '198.51.100.1', [])).toBe('127.0.0.1');
  });
});

describe('parseNetwork', () => {
  it.each(['10.0.0.1', '10.0.0.0/8', '0.0.0.0/0', '2001:db8::/32', '::1', '::ffff:10.0.0.0/104'])(
    '%s',
    (text) => {
      expect(parseNetwork(text)).not.toBeNull();
    },
  );
  it.each([
    '',
    '10',
    '10.1',
    '0x7f000001',
    '10.0.0.0/33',
    '10.0.0.0/-1',
    '10.0.0.0/',
    '10.0.0.0/8/8',
    '2001:db8::/129',
    '::ffff:10.0.0.0/90',
    'fe80::1%eth0',
    'localhost',
    '10.0.0.1\0',
    '١٠.0.0.1',
  ])('%j is none', (text) => {
    expect(parseNetwork(text)).toBeNull();
  });
  it('takes IPv4 in IPv6 for IPv4', () => {
    expect(parseAddress('::ffff:1.2.3.4')?.toString()).toBe('1.2.3.4');
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
