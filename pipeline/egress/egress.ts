import type { IncomingHttpHeaders } from 'node:http';

import { errors } from 'undici';

import { parseAddress } from '../../infra/networks.ts';
import type { Network } from '../../infra/networks.ts';
import { isInAny, reachOf } from './addresses.ts';
import { EgressError, codeOf } from './errors.ts';
import { createPools } from './pools.ts';
import type { Target } from './pools.ts';
import { createResolve } from './resolve.ts';
import type { Resolve } from './resolve.ts';

export interface EgressOptions {
  /** Networks that may be called besides the public internet, by http as well. */
  readonly allowNetworks: readonly Network[];
  /** Ports of the service and its stores: refused at every address that is not public, even in allowed networks. */
  readonly ownPorts: readonly number[];
  /** `ip` or `ip:port`. Default: the system's resolver. */
  readonly dnsServers?: readonly string[];
  /** Replaces `dnsServers`. */
  readonly resolve?: Resolve;
  /** Upper bound of connections to one host. Default: none; the caller limits its calls. */
  readonly connectionsPerHost?: number;
}

export interface EgressRequest {
  readonly method: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** For the whole exchange: resolving, connecting, sending and reading the answer. */
  readonly timeoutMs: number;
  readonly maxBytes: number;
  readonly signal?: AbortSignal;
}

export interface EgressAnswer {
  /** Redirects are not followed. */
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Not decoded, up to `maxBytes`. */
  readonly body: Buffer;
  /** The answer is longer than `maxBytes`. */
  readonly isCut: boolean;
}

/**
 * HTTP client for URLs chosen by clients and contracts. A URL is called only if every address of its host is public or
 * allowed, by https, or by http if all of them are allowed. The host is resolved and checked at every call, and the
 * connection goes to a checked address, so that DNS rebinding has no effect.
 */
export interface Egress {
  /** Returns the reason why the URL is refused, as a sentence for the user who entered it; null if it is accepted. */
  checkUrl(url: string): Promise<string | null>;
  /** @throws EgressError */
  request(url: string, request: EgressRequest): Promise<EgressAnswer>;
  /** Cancels running calls and closes all connections. */
  close(): Promise<void>;
}

const CHECK_MS = 5000;
/** Addresses of a host that are tried until one connects. */
const MAX_ADDRESSES = 4;

export function createEgress(options: EgressOptions): Egress {
  const { allowNetworks, ownPorts, dnsServers = [], connectionsPerHost = null } = options;
  const resolve = options.resolve ?? createResolve(dnsServers);
  const pools = createPools(connectionsPerHost);
  const closing = new AbortController();

  const inspect = async (text: string, signal: AbortSignal): Promise<Target> => {
    const url = parseTargetUrl(text);
    // The name of a host that can only be refused is not resolved.
    if (url.protocol === 'http:' && allowNetworks.length === 0) throw insecure();
    const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
    const addresses = await addressesOf(url, signal);
    let isAllowed = true;
    for (const address of addresses.map(parseAddress)) {
      const reach = address === null ? 'metadata' : reachOf(address);
      const isListed = address !== null && isInAny(address, allowNetworks);
      const isReachable = reach === 'public' || (reach === 'private' && isListed && !ownPorts.includes(port));
      if (!isReachable) throw new EgressError('blocked address');
      isAllowed &&= isListed;
    }
    if (url.protocol === 'http:' && !isAllowed) throw insecure();
    return { url, addresses: addresses.slice(0, MAX_ADDRESSES) };
  };

  const addressesOf = async ({ hostname }: URL, signal: AbortSignal): Promise<readonly string[]> => {
    const host = hostname.replace(/^\[(.*)\]$/, '$1');
    if (parseAddress(host) !== null) return [host];
    const found = await unlessAborted(
      resolve(host).catch(() => []),
      signal,
    );
    if (found.length === 0) throw new EgressError('dns', 'the host does not resolve');
    return found;
  };

  const exchange = async (
    text: string,
    request: EgressRequest,
    signal: AbortSignal,
  ): Promise<EgressAnswer> => {
    const target = await inspect(text, signal);
    const answered = pools.of(target).request({
      method: request.method,
      path: `${target.url.pathname}${target.url.search}`,
      headers: { ...request.headers, 'accept-encoding': 'identity' },
      body: request.body ?? null,
      signal,
    });
    // undici ignores the signal until it is connected.
    const { statusCode, headers, body } = await unlessAborted(answered, signal);
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      // Leaving the loop closes the connection.
      if (bytes > request.maxBytes) break;
    }
    const length = Math.min(bytes, request.maxBytes);
    return { status: statusCode, headers, body: Buffer.concat(chunks, length), isCut: bytes > length };
  };

  return {
    async checkUrl(url) {
      try {
        await withTimeout(CHECK_MS, [closing.signal], (signal) => inspect(url, signal));
        return null;
      } catch (error) {
        if (!(error instanceof EgressError)) throw error;
        return refusalOf(url, error);
      }
    },
    async request(url, request) {
      const signals = request.signal === undefined ? [closing.signal] : [closing.signal, request.signal];
      return await withTimeout(request.timeoutMs, signals, (signal) => exchange(url, request, signal));
    },
    async close() {
      closing.abort();
      await pools.close();
    },
  };
}

/** The URL parser normalizes spellings of an address: `http://0x7f.1` becomes `http://127.0.0.1`. */
function parseTargetUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null) throw new EgressError('invalid url', 'the URL is not valid');
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw insecure();
  }
  if (url.username !== '' || url.password !== '') {
    throw new EgressError('invalid url', 'the URL must not contain a user name or a password');
  }
  return url;
}

/** Why a URL is refused, as a sentence for the user who entered it. */
function refusalOf(url: string, { reason, message }: EgressError): string {
  if (reason === 'blocked address') return 'The host has an address that may not be called.';
  if (reason !== 'dns' && reason !== 'timeout')
    return `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
  return /^http:/i.test(url)
    ? 'The URL must use https, unless its host resolves to an allowed network.'
    : 'The host does not resolve.';
}

function insecure(): EgressError {
  return new EgressError('invalid url', 'the URL must use https');
}

async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener('abort', onAbort);
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

/** Cancels `work` on a timeout, on one of the signals, or when the client closes. */
async function withTimeout<T>(
  ms: number,
  signals: readonly AbortSignal[],
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  // It takes whole milliseconds.
  const timeout = AbortSignal.timeout(Math.ceil(ms));
  const ending = AbortSignal.any([timeout, ...signals]);
  try {
    return await work(ending);
  } catch (error) {
    // After an abort, sockets and streams fail with various errors; the reason is the abort's.
    if (!ending.aborted) throw toEgressError(error);
    throw ending.reason === timeout.reason
      ? new EgressError('timeout', `no answer within ${Math.round(ms / 100) / 10} s`)
      : new EgressError('cancelled');
  }
}

/** Errors of sockets and parsers have a code; every other error is a bug and is thrown as it is. */
function toEgressError(error: unknown): unknown {
  if (error instanceof EgressError) return error;
  if (error instanceof errors.HeadersOverflowError) {
    return new EgressError('invalid answer', 'the headers of the answer are too large', { cause: error });
  }
  if (error instanceof errors.HTTPParserError) {
    return new EgressError('invalid answer', 'the answer is not HTTP', { cause: error });
  }
  if (codeOf(error) === '' || error instanceof errors.InvalidArgumentError) return error;
  return new EgressError('connection', `the connection was closed${codeOf(error)}`, { cause: error });
}
