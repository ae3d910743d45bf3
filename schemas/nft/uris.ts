/** URIs as contracts and documents of NFTs give them. */

/** `ipfs://CID/path`, also `ipfs://ipfs/CID/path` and `ipfs:/CID`, in any case of the scheme. */
const IPFS = /^ipfs:\/*(?:ipfs\/+)*/i;

const ARWEAVE = /^ar:\/\//i;

/**
 * A gateway's address put before what was a whole URI already: `https://ipfs.io/ipfs/ipfs://CID`. What stands before the
 * second scheme is dropped; inside a query (`?url=ipfs://…`) it may well be meant.
 */
const DOUBLED = /^https?:\/\/[^?#]*?\/(ipfs:\/\/.*)$/is;

/** What a URI is meant to be: without blanks around it, and without a gateway before a whole `ipfs://`. */
export function normalizeUri(uri: string): string {
  const text = uri.trim();
  return DOUBLED.exec(text)?.[1] ?? text;
}

/** The path below `/ipfs/` (`CID/name.json`); null where the URI is of another kind. */
export function ipfsPath(uri: string): string | null {
  const text = normalizeUri(uri);
  const path = text.replace(IPFS, '');
  return path === text || path === '' ? null : path;
}

/**
 * Where a gateway serves it, for Arweave that project's own; what is of neither stays as it is.
 *
 * @param gateway the base before `/ipfs/…`; one that already ends in `/ipfs` is taken as it is
 */
export function throughGateway(uri: string, gateway: string): string {
  const path = ipfsPath(uri);
  return path === null
    ? normalizeUri(uri).replace(ARWEAVE, 'https://arweave.net/')
    : `${ipfsBase(gateway)}/${pathText(path)}`;
}

/** The gateway's own folder of IPFS, without a slash at the end. */
export function ipfsBase(gateway: string): string {
  const base = gateway.replace(/\/+$/, '');
  return /\/ipfs$/i.test(base) ? base : `${base}/ipfs`;
}

/**
 * Segments that would climb out of `/ipfs/` are dropped, however the slashes between them are spelt, and what would end the path of a URL is a name's own character:
 * files are called `#1.png`. A query stays one where it follows a file.
 */
function pathText(path: string): string {
  // Line breaks and tabs are nowhere in a URL: whoever parses one drops them, also from the middle of two dots.
  const segments = path
    .replaceAll(/[\t\n\r]/g, '')
    .split(/(?:[/\\]|%2f|%5c)+/i)
    .filter((segment) => !/^(?:\.|%2e){1,2}\s*(?:\?|$)/i.test(segment));
  return segments.join('/').replaceAll('#', '%23');
}

/** `{id}` in the URI of an ERC-1155 stands for the id: 64 hex digits in lower case, without 0x. */
export function substituteTokenId(uri: string, id: bigint): string {
  return uri.replaceAll('{id}', id.toString(16).padStart(64, '0'));
}
