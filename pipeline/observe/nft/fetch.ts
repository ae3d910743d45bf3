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
import type { Body } from './document.ts';
import { unavailable } from './failure.ts';
import { MAX_URI_BYTES } from './token-uri.ts';

export interface FetchOptions {
  /** To whatever host a contract names. */
  readonly egress: Egress;
  /** To the gateway that the operator named, wherever it is; nothing else is asked by it. */
  readonly gatewayEgress: Egress;
  /** The base before `/ipfs/…`. */
  readonly gateway: string;
  /** For the whole of one document, redirects included. */
  readonly timeoutMs: number;
}

/** Where a document is, found before anything is called. */
export interface Source {
  /** What is called, or the `data:` URI itself. */
  readonly uri: string;
  /** Who serves it; null: nobody has to. */
  readonly host: string | null;
}

export interface Fetcher {
  /** @throws MetadataFailure where the URI is of no kind that is fetched */
  locate(uri: string, id: bigint): Source;
  /** @throws MetadataFailure, also when the time is over */
  fetch(source: Source, signal: AbortSignal): Promise<Body>;
}

const MAX_BYTES = 1_048_576;
const MAX_REDIRECTS = 3;

/** A server behind the gateway's may read it as a slash, and what follows as another of its folders. */
const CLIMBS = /%(?:2f|5c)/i;

/** The gateway is one host, whatever it is called. */
export const GATEWAY = 'ipfs';

export function createFetcher({ egress, gatewayEgress, gateway, timeoutMs }: FetchOptions): Fetcher {
  const base = `${new URL(ipfsBase(gateway)).href}/`;

  const get = async (url: string, timeLeftMs: number, signal: AbortSignal): Promise<EgressAnswer> => {
    const way = url.startsWith(base) && !CLIMBS.test(url) ? gatewayEgress : egress;
    const request = {
      method: 'GET',
      headers: { accept: 'application/json, image/*;q=0.5, */*;q=0.1' },
      timeoutMs: Math.max(1, timeLeftMs),
      maxBytes: MAX_BYTES,
      signal,
    };
    try {
      return await way.request(url, request);
    } catch (error) {
      if (!(error instanceof EgressError) || signal.aborted) throw error;
      // Nobody is asked without TLS, unless where the operator allows it; most who say http serve https, too.
      if (error.reason === 'invalid url' && url.startsWith('http:')) {
        return await get(url.replace('http:', 'https:'), timeLeftMs, signal);
      }
      throw unavailable(`${error.reason}: ${error.message}`);
    }
  };

  return {
    locate(given, id) {
      const uri = substituteTokenId(normalizeUri(given), id);
      if (Buffer.byteLength(uri) > MAX_URI_BYTES)
        throw unavailable(`the URI is longer than ${MAX_URI_BYTES} bytes`);
      if (/^data:/i.test(uri)) return { uri, host: null };
      const url = urlOf(throughGateway(uri, gateway));
      if (ipfsPath(uri) !== null) return { uri: url.href, host: GATEWAY };
      return { uri: url.href, host: ownerOf(url) };
    },
    async fetch(source, signal) {
      const data = readDataUri(source.uri);
      if (data !== null) return { ...data, uri: source.uri };
      const deadline = performance.now() + timeoutMs;
      let url = source.uri;
      for (let redirects = 0; ; redirects += 1) {
        const answer = await get(url, deadline - performance.now(), signal);
        const { location } = answer.headers;
        if (answer.status < 300 || answer.status > 399 || location === undefined) return bodyOf(url, answer);
        if (redirects === MAX_REDIRECTS) throw unavailable(`more than ${MAX_REDIRECTS} redirects`);
        // Checked as any other: one to this machine is refused where the first was.
        url = urlOf(location, url).href;
      }
    },
  };
}

/**
 * Whoever registered the domain: he may make as many hosts below it as he likes, and listen at as many ports. Of an IPv6
 * address its network of 64 bits, which is the least that anybody is given.
 */
function ownerOf({ hostname }: URL): string {
  if (!hostname.startsWith('[')) return getDomain(hostname, { allowPrivateDomains: true }) ?? hostname;
  const address = ipaddr.IPv6.parse(hostname.slice(1, -1));
  return `${address
    .toByteArray()
    .slice(0, 8)
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('')}::/64`;
}

function urlOf(text: string, base?: string): URL {
  const url = URL.canParse(text, base) ? new URL(text, base) : null;
  if (url === null) throw unavailable('the URI is not valid');
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw unavailable(`a URI of the scheme ${url.protocol.slice(0, 30)} is not fetched`);
  }
  return url;
}

function bodyOf(uri: string, { status, headers, body, isCut }: EgressAnswer): Body {
  if (status !== 200) throw unavailable(`HTTP ${status}`);
  if (isCut) throw unavailable(`the answer is larger than ${MAX_BYTES} bytes`);
  // A header that comes twice is a list, whatever its type says.
  const [said = ''] = [headers['content-type'] ?? ''].flat();
  const [type = ''] = said.split(';');
  return { uri, bytes: body, type: type.trim().toLowerCase() };
}
