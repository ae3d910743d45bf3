import ipaddr from 'ipaddr.js';

import { isInNetwork, parseAddress } from '../../infra/networks.ts';
import type { Address, Network } from '../../infra/networks.ts';

/**
 * The client's address: the rightmost address in `X-Forwarded-For` that is not a trusted proxy, and the peer itself where
 * that is not a trusted proxy. Addresses left of it can be forged.
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
    // A trusted proxy wrote something other than an address: the proxy itself counts as the client.
    if (next === null) break;
    client = next;
  }
  return client.toString();
}

/** The key of limits per client address: an IPv4 address, or the /64 of an IPv6 address. */
export function addressBlock(ip: string): string {
  const address = parseAddress(ip);
  if (address === null || !(address instanceof ipaddr.IPv6)) return ip;
  return `${address.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`;
}
