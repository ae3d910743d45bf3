import { z } from 'zod';

import type { NftMessage } from '../../../schemas/messages/nft.ts';
import { substituteTokenId } from '../../../schemas/nft/uris.ts';
import { storable } from '../../../schemas/text.ts';
import { unavailable } from './failure.ts';

/** The metadata fields of a document, with every value converted to text. */
export type Metadata = Omit<
  Extract<NftMessage, { type: 'nft.metadata_fetched' }>,
  'type' | 'v' | 'token' | 'token_id' | 'uri' | 'observed_at'
>;

/** A downloaded body. */
export interface Body {
  /** Of an image, perhaps only the first. */
  readonly bytes: Buffer;
  /** Media type in lower case, without parameters; '' where there is none. */
  readonly type: string;
  /** An image is its own metadata. */
  readonly uri: string;
}

const MAX_DEPTH = 64;
const MAX_ATTRIBUTES = 500;
/** In UTF-8, all attributes together. */
const MAX_ATTRIBUTE_BYTES = 65_536;
const MAX_NAME = 1000;
const MAX_TEXT = 10_000;
const MAX_LINK = 4096;
/** Images embedded as `data:` URIs. */
const MAX_DATA_LINK = 524_288;

/**
 * Parses the metadata document of a token id: JSON, an image, or SVG markup.
 *
 * @throws MetadataFailure for anything else
 */
export function readMetadata(body: Body, id: bigint): Metadata {
  if (isImage(body.type)) return { ...EMPTY, image: link(body.uri) };
  const text = body.bytes.toString('utf8').replace(/^\uFEFF/, '');
  if (isSvg(text)) return { ...EMPTY, image: link(svgUri(text)) };
  if (depthOf(text) > MAX_DEPTH) throw unavailable(`the metadata is nested deeper than ${MAX_DEPTH}`);
  const document = z.record(z.string(), z.unknown()).safeParse(parse(text, id)).data;
  if (document === undefined) throw unavailable('the metadata is not a JSON object');
  return {
    name: scalarText(document['name'], MAX_NAME),
    description: scalarText(document['description'], MAX_TEXT),
    image: imageOf(document),
    external_url: webLink(document['external_url']),
    animation_url: link(document['animation_url']),
    attributes: attributesOf(document['attributes']),
  };
}

export const isImage = (mediaType: string): boolean => mediaType.startsWith('image/');

const EMPTY: Metadata = {
  name: null,
  description: null,
  image: null,
  external_url: null,
  animation_url: null,
  attributes: [],
};

/** Keeps numbers as text: `JSON.parse` rounds those above 2^53. */
function parse(text: string, id: bigint): unknown {
  try {
    return JSON.parse(text, (_key, value: unknown, context?: { source?: string }) => {
      if (typeof value === 'string') return substituteTokenId(value, id);
      return typeof value === 'number' ? (context?.source ?? String(value)) : value;
    });
  } catch {
    return undefined;
  }
}

/** Depth of nested brackets outside strings; checked before parsing, whose recursion could overflow the stack. */
function depthOf(text: string): number {
  let [depth, deepest, isString] = [0, 0, false];
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (isString) {
      if (code === BACKSLASH) at += 1;
      else if (code === QUOTE) isString = false;
    } else if (code === QUOTE) isString = true;
    else if (code === OPEN_BRACE || code === OPEN_BRACKET) deepest = Math.max(deepest, (depth += 1));
    else if (code === CLOSE_BRACE || code === CLOSE_BRACKET) depth -= 1;
  }
  return deepest;
}
const [QUOTE, BACKSLASH] = [0x22, 0x5c];
const [OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET] = [0x7b, 0x7d, 0x5b, 0x5d];

/** Text of a string, number or boolean; null for anything else. */
function scalarText(value: unknown, maxLength: number): string | null {
  if (typeof value === 'boolean') return String(value);
  return typeof value === 'string' ? truncate(value, maxLength) : null;
}

/** Does not split a surrogate pair. */
function truncate(text: string, maxLength: number): string {
  return storable(
    text.length > maxLength
      ? `${text
          .slice(0, maxLength)
          .toWellFormed()
          .replace(/\uFFFD$/, '')}…`
      : text,
  );
}

/** Text of any value: lists and objects as JSON, null as ''. */
function asText(value: unknown): string {
  if (value === null || value === undefined) return '';
  return scalarText(value, MAX_NAME) ?? truncate(JSON.stringify(value), MAX_NAME);
}

/** Reads a list of attributes, or an object of values by name. A missing name or value becomes ''. */
function attributesOf(value: unknown): Metadata['attributes'] {
  let bytesLeft = MAX_ATTRIBUTE_BYTES;
  const all = listOfAttributes(value);
  const end = all.findIndex(
    (attribute) => (bytesLeft -= Buffer.byteLength(attribute.trait_type + attribute.value)) < 0,
  );
  return end < 0 ? all : all.slice(0, end);
}

function listOfAttributes(value: unknown): Metadata['attributes'] {
  if (Array.isArray(value)) {
    return value.slice(0, MAX_ATTRIBUTES).flatMap((entry: unknown) => {
      if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) return [];
      const fields: Readonly<Record<string, unknown>> = { ...entry };
      return [
        {
          trait_type: scalarText(fields['trait_type'], MAX_NAME) ?? '',
          value: asText(fields['value']),
        },
      ];
    });
  }
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value)
    .slice(0, MAX_ATTRIBUTES)
    .map(([name, entry]) => ({ trait_type: truncate(name, MAX_NAME), value: asText(entry) }));
}

function imageOf(document: Readonly<Record<string, unknown>>): string | null {
  const { image, image_url: imageUrl, image_data: imageData } = document;
  const isMarkup = (value: unknown): value is string => typeof value === 'string' && isSvg(value);
  for (const value of [image, imageUrl, imageData]) {
    const found = isMarkup(value) ? link(svgUri(value)) : link(value);
    if (found !== null) return found;
  }
  return null;
}

const isSvg = (text: string): boolean =>
  /^\s*(<\?xml[^>]*>\s*)?(<!DOCTYPE svg[^>]*>\s*)?<svg[\s>]/i.test(text);

/** As a `data:` URI: inside an <img> element scripts do not run. */
const svgUri = (markup: string): string =>
  `data:image/svg+xml;base64,${Buffer.from(markup).toString('base64')}`;

const CID = /^(Qm[1-9A-HJ-NP-Za-km-z]{44}|baf[a-z2-7]{20,})(\/|$)/;

/**
 * Returns a URI that is safe to show as an image, a video or audio: https, http, IPFS, Arweave, or a `data:` URI of such a
 * type. Schemes that run code or read local files (`javascript:`, `data:text/html`, `file:`) become null.
 */
function link(value: unknown): string | null {
  if (typeof value !== 'string') return null;
  const text = value.trim();
  if (/^data:(image|audio|video)\//i.test(text)) return text.length > MAX_DATA_LINK ? null : storable(text);
  if (text === '' || text.length > MAX_LINK) return null;
  if (CID.test(text)) return `ipfs://${storable(text)}`;
  if (/^\/?ipfs\//.test(text)) return `ipfs://${storable(text.replace(/^\/?ipfs\//, ''))}`;
  return /^(https?:\/\/|ipfs:|ar:\/\/)/i.test(text) ? storable(text) : null;
}

/** As `link`, without `data:` URIs: a page in one would run with the origin of the client. */
function webLink(value: unknown): string | null {
  const found = link(value);
  return found === null || /^data:/i.test(found) ? null : found;
}
