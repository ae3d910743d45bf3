import ipaddr from 'ipaddr.js';

import { isInNetwork, parseNetwork } from '../../infra/networks.ts';
import type { Address, Network } from '../../infra/networks.ts';

/**
 * `public`: the internet; `private`: this machine, its networks, or unassigned; `metadata`: a cloud provider's metadata
 * service, which serves credentials and must never be reached by a URL that a client or contract chose.
 */
export type Reach = 'public' | 'private' | 'metadata';

const networks = (...texts: string[]): Network[] => texts.flatMap((text) => parseNetwork(text) ?? []);
const v6 = (text: string): ipaddr.IPv6 => ipaddr.IPv6.parse(text);

/** Metadata services: link-local for most providers; Alibaba, Azure, Oracle; Amazon, Google, Scaleway on IPv6. */
const METADATA = networks(
  '169.254.0.0/16',
  '100.100.100.200',
  '168.63.129.16',
  '192.0.0.192',
  'fe80::/10',
  'fd00:ec2::/32',
  'fd20:ce::254',
  'fd00:42::42',
);

/** All of IPv6 that IANA has assigned to the internet; ipaddr.js knows the special ranges in it. */
const GLOBAL_UNICAST = networks('2000::/3');

export function reachOf(address: Address): Reach {
  const targets = [address, ...embeddedIpv4(address)];
  if (targets.some((target) => isInAny(target, METADATA))) return 'metadata';
  const isGlobal = address.kind() === 'ipv4' || isInAny(address, GLOBAL_UNICAST);
  return isGlobal && address.range() === 'unicast' ? 'public' : 'private';
}

export function isInAny(address: Address, list: readonly Network[]): boolean {
  return list.some((network) => isInNetwork(address, network));
}

/** The IPv4 address that a translator or tunnel would connect to for an IPv6 address. */
function embeddedIpv4(address: Address): ipaddr.IPv4[] {
  if (!(address instanceof ipaddr.IPv6)) return [];
  const bytes = address.toByteArray();
  const ipv4At = (offset: number, flip = 0): ipaddr.IPv4[] => [
    new ipaddr.IPv4(bytes.slice(offset, offset + 4).map((byte) => byte ^ flip)),
  ];
  if (address.match(v6('2002::'), 16)) return ipv4At(2);
  if (address.match(v6('2001::'), 32)) return ipv4At(12, 0xff);
  const isLast =
    // NAT64, well-known and local prefix; SIIT; IPv4-compatible; ISATAP with any prefix.
    address.match(v6('64:ff9b::'), 96) ||
    address.match(v6('64:ff9b:1::'), 48) ||
    address.match(v6('::ffff:0:0:0'), 96) ||
    address.match(v6('::'), 96) ||
    (address.parts[5] === 0x5efe && ((address.parts[4] ?? 0) & 0xfdff) === 0);
  return isLast ? ipv4At(12) : [];
}
