import { isIP } from 'node:net';

import ipaddr from 'ipaddr.js';

export type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** One address or a network, IPv4 or IPv6. */
export interface Network {
  readonly address: Address;
  readonly bits: number;
}

/** Parses an address, IPv4-mapped IPv6 as IPv4. Null for other texts, including short and decimal forms of IPv4. */
export function parseAddress(text: string): Address | null {
  const [bare = ''] = text.split('%');
  return isIP(bare) === 0 ? null : ipaddr.process(bare);
}

/** Parses `10.0.0.1`, `10.0.0.0/8` or `2001:db8::/32`; null for other texts. */
export function parseNetwork(text: string): Network | null {
  const [host = '', mask, ...rest] = text.trim().split('/');
  if (rest.length > 0 || host.includes('%')) return null;
  const version = isIP(host);
  const address = parseAddress(host);
  if (address === null) return null;
  const size = address.kind() === 'ipv4' ? 32 : 128;
  if (mask === undefined) return { address, bits: size };
  if (!/^[0-9]{1,3}$/.test(mask)) return null;
  // ::ffff:10.0.0.0/104 is 10.0.0.0/8.
  const bits = Number(mask) - (version === 6 && size === 32 ? 96 : 0);
  return bits >= 0 && bits <= size ? { address, bits } : null;
}

export function isInNetwork(address: Address, { address: base, bits }: Network): boolean {
  if (address.kind() === 'ipv4' && base.kind() === 'ipv4') return address.match(base, bits);
  if (address.kind() === 'ipv6' && base.kind() === 'ipv6') return address.match(base, bits);
  return false;
}
