import ipaddr from 'ipaddr.js';
import { getDomain } from 'tldts';

import {
  ipfsBase,
  ipfsPath,
  normalizeUri,
  throughGateway,
  substituteTokenId,
} from '../../../schemas/nft/uris.ts';
import type { Egress, EgressAnswer } from '../../egress/egress.ts';
import { EgressError } from '../../egress/errors.ts';
import { readDataUri } from './data-uri.ts';
import { isImage } from './document.ts';
import type { Body } from './document.ts';
import { unavailable } from './failure.ts';
import { MAX_URI_BYTES } from './token-uri.ts';

export interface FetchOptions {
  /** For the hosts that contracts name. */
  readonly egress: Egress;
  /** For the configured gateway only, which may be in a private network. */
  readonly gatewayEgress: Egress;
  /** Base URL, without `/ipfs/…`. */
  readonly gateway: string;
  /** For one document, redirects included. */
  readonly timeoutMs: number;
}

/** Where to download a document. */
export interface Source {
  /**
   * The URI that the contract names, with the token id filled in. An image that is its own metadata is stored by it,
   * and not by the URL, because gateways change.
   */
  readonly uri: string;
  /** URL to call, or the `data:` URI itself. */
  readonly url: string;
  /** Key of the host's download slots; null where nothing is downloaded. */
  readonly host: string | null;
}

export interface Fetcher {
  /** @throws MetadataFailure for an invalid URI or a scheme that is not supported */
  locate(uri: string, id: bigint): Source;
  /** @throws MetadataFailure, also on a timeout */
  fetch(source: Source, signal: AbortSignal): Promise<Body>;
}

const MAX_BYTES = 1_048_576;
const MAX_REDIRECTS = 3;

/** Encoded slashes: a server behind the gateway may take them for separators, and the path could leave `/ipfs/`. */
const ENCODED_SLASH = /%(?:2f|5c)/i;

/** The `host` of everything that the gateway serves. */
export const GATEWAY = 'ipfs';

export function createFetcher({ egress, gatewayEgress, gateway, timeoutMs }: FetchOptions): Fetcher {
  const base = `${new URL(ipfsBase(gateway)).href}/`;

  const get = async (url: string, remainingMs: number, signal: AbortSignal): Promise<EgressAnswer> => {
    const client = url.startsWith(base) && !ENCODED_SLASH.test(url) ? gatewayEgress : egress;
    const request = {
      method: 'GET',
      headers: { accept: 'application/json, image/*;q=0.5, */*;q=0.1' },
      timeoutMs: Math.max(1, remainingMs),
      maxBytes: MAX_BYTES,
      signal,
    };
    try {
      return await client.request(url, request);
    } catch (error) {
      if (!(error instanceof EgressError) || signal.aborted) throw error;
      // Egress refuses http outside the allowed networks; most hosts serve https as well.
      if (error.reason === 'invalid url' && url.startsWith('http:')) {
        return await get(url.replace('http:', 'https:'), remainingMs, signal);
      }
      throw unavailable(`${error.reason}: ${error.message}`);
    }
  };

  return {
    locate(given, id) {
      const uri = substituteTokenId(normalizeUri(given), id);
      if (Buffer.byteLength(uri) > MAX_URI_BYTES)
        throw unavailable(`the URI is longer than ${MAX_URI_BYTES} bytes`);
      if (/^data:/i.test(uri)) return { uri, url: uri, host: null };
      const url = parseUrl(throughGateway(uri, gateway));
      return { uri, url: url.href, host: ipfsPath(uri) === null ? slotKeyOf(url) : GATEWAY };
    },
    async fetch(source, signal) {
      const data = readDataUri(source.url);
      if (data !== null) return { ...data, uri: source.uri };
      const deadline = performance.now() + timeoutMs;
      let { url } = source;
      for (let redirects = 0; ; redirects += 1) {
        const answer = await get(url, deadline - performance.now(), signal);
        const { location } = answer.headers;
        if (answer.status < 300 || answer.status > 399 || location === undefined)
          return bodyOf(source.uri, answer);
        if (redirects === MAX_REDIRECTS) throw unavailable(`more than ${MAX_REDIRECTS} redirects`);
        // Egress checks the address of the redirect as well.
        url = parseUrl(location, url).href;
      }
    },
  };
}

/**
 * The registrable domain, because its owner can create any number of hosts below it and listen on any port. For an IPv6
 * address the /64 network, the smallest that providers assign.
 */
function slotKeyOf({ hostname }: URL): string {
  if (!hostname.startsWith('[')) return getDomain(hostname, { allowPrivateDomains: true }) ?? hostname;
  const address = ipaddr.IPv6.parse(hostname.slice(1, -1));
  return `${address
    .toByteArray()
    .slice(0, 8)
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('')}::/64`;
}

function parseUrl(text: string, base?: string): URL {
  const url = URL.canParse(text, base) ? new URL(text, base) : null;
  if (url === null) throw unavailable('the URI is not valid');
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw unavailable(`unsupported URI scheme ${url.protocol.slice(0, 30)}`);
  }
  return url;
}

function bodyOf(uri: string, { status, headers, body, isCut }: EgressAnswer): Body {
  if (status !== 200) throw unavailable(`HTTP ${status}`);
  // A repeated header is an array, although its type is string.
  const [contentType = ''] = [headers['content-type'] ?? ''].flat();
  const [mediaType = ''] = contentType.split(';');
  const type = mediaType.trim().toLowerCase();
  if (isCut && !isImage(type)) throw unavailable(`answer larger than ${MAX_BYTES} bytes`);
  return { uri, bytes: body, type };
}
