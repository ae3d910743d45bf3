import ipaddr from 'ipaddr.js';

import { isInNetwork, parseNetwork } from '../../infra/networks.ts';
import type { Address, Network } from '../../infra/networks.ts';

/**
 * Who can be met at an address: `public`, anyone on the internet; `private`, this machine, its neighbours, or nobody;
 * `metadata`, the keeper of a cloud machine's secrets, whom nothing that a stranger asks for may ever reach.
 */
export type Reach = 'public' | 'private' | 'metadata';

const networks = (...texts: string[]): Network[] => texts.flatMap((text) => parseNetwork(text) ?? []);
const v6 = (text: string): ipaddr.IPv6 => ipaddr.IPv6.parse(text);

/** Link-local, where most of them are, and the others: Alibaba, Azure, Oracle; Amazon, Google, Scaleway on IPv6. */
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

/** All that IANA has given out for the internet; what is special in it, ipaddr.js knows. */
const GLOBAL_UNICAST = networks('2000::/3');

export function reachOf(address: Address): Reach {
  const met = [address, ...carried(address)];
  if (met.some((one) => isInAny(one, METADATA))) return 'metadata';
  const isGlobal = address.kind() === 'ipv4' || isInAny(address, GLOBAL_UNICAST);
  return isGlobal && address.range() === 'unicast' ? 'public' : 'private';
}

export function isInAny(address: Address, among: readonly Network[]): boolean {
  return among.some((network) => isInNetwork(address, network));
}

/** The IPv4 address that a translator or tunnel takes an IPv6 address for. */
function carried(address: Address): ipaddr.IPv4[] {
  if (!(address instanceof ipaddr.IPv6)) return [];
  const bytes = address.toByteArray();
  const ipv4At = (offset: number, flip = 0): ipaddr.IPv4[] => [
    new ipaddr.IPv4(bytes.slice(offset, offset + 4).map((byte) => byte ^ flip)),
  ];
  if (address.match(v6('2002::'), 16)) return ipv4At(2);
  if (address.match(v6('2001::'), 32)) return ipv4At(12, 0xff);
  const isLast =
    // NAT64, well known and local; SIIT; IPv4-compatible; ISATAP behind any prefix.
    address.match(v6('64:ff9b::'), 96) ||
    address.match(v6('64:ff9b:1::'), 48) ||
    address.match(v6('::ffff:0:0:0'), 96) ||
    address.match(v6('::'), 96) ||
    (address.parts[5] === 0x5efe && ((address.parts[4] ?? 0) & 0xfdff) === 0);
  return isLast ? ipv4At(12) : [];
}
