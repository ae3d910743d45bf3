/** URIs in NFT contracts and metadata documents. */

/** `ipfs://CID/path`, also `ipfs://ipfs/CID/path` and `ipfs:/CID`, case-insensitive. */
const IPFS = /^ipfs:\/*(?:ipfs\/+)*/i;

const ARWEAVE = /^ar:\/\//i;

/**
 * A gateway prefixed to a complete URI: `https://ipfs.io/ipfs/ipfs://CID`. The prefix is dropped, except where the second
 * URI is part of a query (`?url=ipfs://…`).
 */
const DOUBLED = /^https?:\/\/[^?#]*?\/(ipfs:\/\/.*)$/is;

/** Trims a URI and removes a gateway that was prefixed to a complete `ipfs://` URI. */
export function normalizeUri(uri: string): string {
  const text = uri.trim();
  return DOUBLED.exec(text)?.[1] ?? text;
}

/** The path below `/ipfs/` (`CID/name.json`); null if the URI is not an IPFS URI. */
export function ipfsPath(uri: string): string | null {
  const text = normalizeUri(uri);
  const path = text.replace(IPFS, '');
  return path === text || path === '' ? null : path;
}

/**
 * The http URL of a URI: IPFS through the gateway, Arweave through arweave.net, any other unchanged.
 *
 * @param gateway the base before `/ipfs/…`, with or without a final `/ipfs`
 */
export function throughGateway(uri: string, gateway: string): string {
  const path = ipfsPath(uri);
  return path === null
    ? normalizeUri(uri).replace(ARWEAVE, 'https://arweave.net/')
    : `${ipfsBase(gateway)}/${pathText(path)}`;
}

/** The gateway's URL up to `/ipfs`, without a final slash. */
export function ipfsBase(gateway: string): string {
  const base = gateway.replace(/\/+$/, '');
  return /\/ipfs$/i.test(base) ? base : `${base}/ipfs`;
}

/**
 * The path as part of a URL. Segments that would leave `/ipfs/` are dropped, however their slashes are spelt. `#` is escaped
 * because file names contain it (`#1.png`); a query is kept.
 */
function pathText(path: string): string {
  // URL parsers drop line breaks and tabs, also between two dots, so they must not hide a `..` here.
  const segments = path
    .replaceAll(/[\t\n\r]/g, '')
    .split(/(?:[/\\]|%2f|%5c)+/i)
    .filter((segment) => !/^(?:\.|%2e){1,2}\s*(?:\?|$)/i.test(segment));
  return segments.join('/').replaceAll('#', '%23');
}

/** Replaces `{id}` in a URI, or in a value of a metadata document, by the id: 64 lower-case hex digits without 0x (ERC-1155). */
export function substituteTokenId(text: string, id: bigint): string {
  return text.replaceAll('{id}', id.toString(16).padStart(64, '0'));
}
