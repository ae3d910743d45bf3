import ipaddr from 'ipaddr.js';

import { isInNetwork, parseAddress } from '../../infra/networks.ts';
import type { Address, Network } from '../../infra/networks.ts';

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
