import { isIP } from 'node:net';

import ipaddr from 'ipaddr.js';

type Address = ipaddr.IPv4 | ipaddr.IPv6;

/** One address or a network, IPv4 or IPv6; throws a RangeError on anything else. */
export interface Network {
  readonly address: Address;
  readonly bits: number;
}

/** An address with IPv4 in IPv6 taken as IPv4; `null` when it is none. Short and decimal spellings are none. */
export function parseAddress(text: string): Address | null {
  const [bare = ''] = text.split('%');
  return isIP(bare) === 0 ? null : ipaddr.process(bare);
}

/** `10.0.0.1`, `10.0.0.0/8`, `2001:db8::/32`; `null` when it is none of them. */
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

/**
 * The client's address: `X-Forwarded-For` is walked from the right over trusted proxies, and only when the peer itself
 * is one. The first address that is not a trusted proxy is the client's; what stands left of it, anyone can write.
 */
export function clientAddress(
  peer: string,
  forwardedFor: string | undefined,
  trusted: readonly Network[],
): string {
  const isTrusted = (address: Address): boolean => trusted.some((network) => isInNetwork(address, network));
  let client = parseAddress(peer);
  if (client === null) return peer;
  const hops = (forwardedFor ?? '').split(',').map((hop) => hop.trim());
  for (const hop of hops.toReversed()) {
    if (!isTrusted(client)) break;
    const next = parseAddress(hop.replace(/^\[(.*)\](?::\d+)?$/, '$1').replace(/^([\d.]+):\d+$/, '$1'));
    // A trusted proxy wrote something that is no address: what it heard from is not known; it stands for it.
    if (next === null) break;
    client = next;
  }
  return client.toString();
}

/** What one client holds of the address space, to count its failures by: an IPv6 address stands for its /64. */
export function addressBlock(ip: string): string {
  const address = parseAddress(ip);
  if (address === null || !(address instanceof ipaddr.IPv6)) return ip;
  return `${address.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`;
}
