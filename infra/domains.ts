import { isIP } from 'node:net';

import { getDomain } from 'tldts';

import { domainName } from '../schemas/catalogue.ts';
import { hasWhitespaceOrControl } from '../schemas/text.ts';

/**
 * Names of hosts as they are listed, reported and asked for. `www.` is taken off: a site with it and without it is one.
 * Public suffixes are those of the list that browsers use, private ones such as github.io among them.
 */

/** A link as it is copied from a browser: the host is what counts. */
const LINK = /^https?:\/\//i;

/** What ends a host or names a user before it; a browser takes a backslash for a slash. */
const BEYOND_HOST = /[/\\?#@%]/;

/**
 * The one form that all spellings of a host have: lower case, punycode as browsers make it (UTS 46), no port, no dot at
 * the end, no leading `www.`. Takes a host or an http(s) link. Null where it is neither, and for numbers that a browser
 * would read as an IPv4 address though they are not written as one.
 */
export function normalDomain(text: string): string | null {
  const asked = text.trim();
  const isLink = LINK.test(asked);
  // The parser of URLs drops tabs and line breaks, wherever they are.
  if (hasWhitespaceOrControl(asked) || (!isLink && BEYOND_HOST.test(asked))) return null;
  const url = URL.parse(isLink ? asked : `http://${asked}`);
  if (url === null) return null;
  const host = url.hostname.replace(/\.$/, '');
  if (isIP(host) === 4 && !asked.replace(LINK, '').startsWith(host)) return null;
  const domain = withoutWww(host);
  return domainName.safeParse(domain).success ? domain : null;
}

/** `www.` before a public suffix is a name like others. */
function withoutWww(host: string): string {
  const rest = host.startsWith('www.') ? host.slice('www.'.length) : null;
  return rest === null || registrable(rest) === null ? host : withoutWww(rest);
}

/**
 * A normal domain, then its parents, up to the one that somebody has registered: what is said of a public suffix is said
 * of nothing below it. An address, and a suffix, has no parents.
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

/** Whether nobody owns it: `com`, `co.uk`, `github.io`, `localhost`. */
export function isPublicSuffix(domain: string): boolean {
  const isAddress = domain.startsWith('[') || isIP(domain) !== 0;
  return !isAddress && registrable(domain) === null;
}

/** The name right below a public suffix; null for an address, a suffix, and a name of one label. */
function registrable(domain: string): string | null {
  return getDomain(domain, { allowPrivateDomains: true, extractHostname: false, validateHostname: false });
}
