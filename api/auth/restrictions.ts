import { isInNetwork, parseAddress, parseNetwork } from '../../infra/networks.ts';

/** Where an API key may be used from; an empty list allows all. */
export interface Restrictions {
  readonly allowedOrigins: readonly string[];
  readonly allowedIps: readonly string[];
}

interface OriginRule {
  /** null: http and https. */
  readonly scheme: string | null;
  readonly host: string;
  /** '' is the scheme's default port. */
  readonly port: string;
  /** Matches subdomains of the host, but not the host itself. */
  readonly isWildcard: boolean;
}

/**
 * Parses `https://example.org:8443`, a bare host (`example.org`, `localhost:3000`: http and https), `*.example.org` or
 * `https://*.example.org`; null for anything else.
 */
export function parseOriginRule(text: string): OriginRule | null {
  const match = /^(?:([a-z][a-z0-9+.-]*):\/\/)?(\*\.)?([^*/?#@\s\\]+)\/?$/i.exec(text.trim());
  const [, scheme, star, authority = ''] = match ?? [];
  if (match === null || !URL.canParse(`${scheme ?? 'http'}://${authority}`)) return null;
  const { hostname, port } = new URL(`${scheme ?? 'http'}://${authority}`);
  // A bare host is parsed as http, where URL drops port 80.
  const barePort = scheme === undefined && authority.endsWith(':80') ? '80' : port;
  const isWildcard = star !== undefined;
  if (hostname === '' || (isWildcard && parseAddress(hostname) !== null)) return null;
  return { scheme: scheme?.toLowerCase() ?? null, host: hostname, port: barePort, isWildcard };
}

/** Exact scheme, host and port; `null` (an opaque origin) matches nothing. */
export function matchesOrigin(origin: string, rule: OriginRule): boolean {
  if (!/^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s\\]+\/?$/i.test(origin) || !URL.canParse(origin)) return false;
  const { protocol, hostname, port } = new URL(origin);
  const scheme = protocol.slice(0, -1);
  const isScheme = rule.scheme === null ? scheme === 'https' || scheme === 'http' : scheme === rule.scheme;
  const isHost = rule.isWildcard ? hostname.endsWith(`.${rule.host}`) : hostname === rule.host;
  const defaults: Readonly<Record<string, string>> = { http: '80', https: '443' };
  const isPort =
    port === rule.port || (port === '' && rule.scheme === null && defaults[scheme] === rule.port);
  return isScheme && isHost && isPort;
}

/**
 * With an `Origin` (or else `X-Origin`) header the origin decides, without one the client address.
 *
 * @returns the restriction that is violated, or null
 */
export function findViolation(
  { allowedOrigins, allowedIps }: Restrictions,
  { origin, ip }: { readonly origin: string; readonly ip: string },
): 'origin' | 'ip' | null {
  if (origin !== '') {
    if (allowedOrigins.length === 0) return null;
    const isAllowed = allowedOrigins.some((text) => {
      const rule = parseOriginRule(text);
      return rule !== null && matchesOrigin(origin, rule);
    });
    return isAllowed ? null : 'origin';
  }
  if (allowedIps.length === 0) return null;
  const address = parseAddress(ip);
  const isAllowed = allowedIps.some((text) => {
    const network = parseNetwork(text);
    return address !== null && network !== null && isInNetwork(address, network);
  });
  return isAllowed ? null : 'ip';
}
