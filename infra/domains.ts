import { isIP } from 'node:net';

import { getDomain } from 'tldts';

import { domainName } from '../schemas/catalogue.ts';
import { hasWhitespaceOrControl } from '../schemas/text.ts';

/**
 * Domains in the catalogue, in reports and in requests. A leading `www.` is removed. Public suffixes are those of the list
 * that browsers use, including private ones such as github.io.
 */

/** A link copied from a browser, of which only the host counts. */
const LINK = /^https?:\/\//i;

/** Ends a host, or a user name before it; browsers treat a backslash as a slash. */
const NOT_IN_HOST = /[/\\?#@%]/;

/**
 * Normalises a host or an http(s) link: lower case, punycode as in browsers (UTS 46), without port, trailing dot and
 * leading `www.`. Null for other texts, and for numbers that a browser would convert to an IPv4 address.
 */
export function normalDomain(text: string): string | null {
  const trimmed = text.trim();
  const isLink = LINK.test(trimmed);
  // URL.parse removes tabs and line breaks anywhere in a text.
  if (hasWhitespaceOrControl(trimmed) || (!isLink && NOT_IN_HOST.test(trimmed))) return null;
  const url = URL.parse(isLink ? trimmed : `http://${trimmed}`);
  if (url === null) return null;
  const host = url.hostname.replace(/\.$/, '');
  if (isIP(host) === 4 && !trimmed.replace(LINK, '').startsWith(host)) return null;
  const domain = withoutWww(host);
  return domainName.safeParse(domain).success ? domain : null;
}

/** Keeps `www.` before a public suffix, where it is the registered name. */
function withoutWww(host: string): string {
  const rest = host.startsWith('www.') ? host.slice('www.'.length) : null;
  return rest === null || registrable(rest) === null ? host : withoutWww(rest);
}

/**
 * A normalised domain and its parents up to the registered one, as an entry of a public suffix does not cover the domains
 * below it. An address and a public suffix have no parents.
 */
export function domainAndParents(domain: string): string[] {
  const top = registrable(domain);
  const names = [domain];
  for (let name = domain; top !== null && name !== top;) {
    name = name.slice(name.indexOf('.') + 1);
    names.push(name);
  }
  return names;
}

/** True for `com`, `co.uk`, `github.io` or `localhost`, which have no owner. */
export function isPublicSuffix(domain: string): boolean {
  const isAddress = domain.startsWith('[') || isIP(domain) !== 0;
  return !isAddress && registrable(domain) === null;
}

/** The registered domain: one label below a public suffix. Null for an address, a suffix and a single label. */
function registrable(domain: string): string | null {
  return getDomain(domain, { allowPrivateDomains: true, extractHostname: false, validateHostname: false });
}
