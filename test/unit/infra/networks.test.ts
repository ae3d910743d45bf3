import { describe, expect, it } from 'vitest';

import { parseAddress, parseNetwork } from '../../../infra/networks.ts';

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
