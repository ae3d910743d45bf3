import { z } from 'zod';

import type { NftMessage } from '../../../schemas/messages/nft.ts';
import { storable } from '../../../schemas/text.ts';
import { unavailable } from './failure.ts';

/** What a document of metadata says, whatever its types were. */
export type Metadata = Omit<
  Extract<NftMessage, { type: 'nft.metadata_fetched' }>,
  'type' | 'v' | 'token' | 'token_id' | 'uri' | 'observed_at'
>;

/** A body as it came. */
export interface Body {
  readonly bytes: Buffer;
  /** In lower case, without parameters; '' where none was said. */
  readonly type: string;
  /** What it was fetched by: an image is its own metadata. */
  readonly uri: string;
}

const MAX_DEPTH = 64;
const MAX_ATTRIBUTES = 500;
/** Of all of them, in UTF-8. */
const MAX_ATTRIBUTE_BYTES = 65_536;
const MAX_NAME = 1000;
const MAX_TEXT = 10_000;
const MAX_LINK = 4096;
/** Pictures in the document itself. */
const MAX_DATA_LINK = 524_288;

/** Opens documents of metadata. @throws MetadataFailure where it is none */
export function readMetadata(body: Body): Metadata {
  if (body.type.startsWith('image/')) {
    return { ...NOTHING, image: link(body.uri) };
  }
  const text = body.bytes.toString('utf8').replace(/^\uFEFF/, '');
  if (isSvg(text)) return { ...NOTHING, image: link(svgUri(text)) };
  if (depthOf(text) > MAX_DEPTH) throw unavailable(`the metadata is nested more than ${MAX_DEPTH} deep`);
  const document = z.record(z.string(), z.unknown()).safeParse(parse(text)).data;
  if (document === undefined) throw unavailable('the metadata is no JSON object');
  return {
    name: plain(document['name'], MAX_NAME),
    description: plain(document['description'], MAX_TEXT),
    image: imageOf(document),
    external_url: webLink(document['external_url']),
    animation_url: link(document['animation_url']),
    attributes: attributesOf(document['attributes']),
  };
}

const NOTHING: Metadata = {
  name: null,
  description: null,
  image: null,
  external_url: null,
  animation_url: null,
  attributes: [],
};

/** Numbers as they are written: 2^53 and above would be rounded. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text, (_key, value: unknown, context?: { source?: string }) =>
      typeof value === 'number' ? (context?.source ?? String(value)) : value,
    );
  } catch {
    return undefined;
  }
}

/** How deep brackets are nested in a text, those inside strings left out: told before anything walks into them. */
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

/** A text, or a number or boolean as one; null for all else. */
function plain(value: unknown, most: number): string | null {
  if (typeof value === 'boolean') return String(value);
  return typeof value === 'string' ? cut(value, most) : null;
}

/** Never in the middle of a character. */
function cut(text: string, most: number): string {
  return storable(
    text.length > most
      ? `${text
          .slice(0, most)
          .toWellFormed()
          .replace(/\uFFFD$/, '')}…`
      : text,
  );
}

/** As a text, whatever it is: a list or an object as JSON, nothing as ''. */
function asText(value: unknown): string {
  if (value === null || value === undefined) return '';
  return plain(value, MAX_NAME) ?? cut(JSON.stringify(value), MAX_NAME);
}

/** A list of attributes, or an object of them by name. What has no name or no value has an empty text. */
function attributesOf(value: unknown): Metadata['attributes'] {
  let left = MAX_ATTRIBUTE_BYTES;
  const all = listOfAttributes(value);
  const end = all.findIndex((one) => (left -= Buffer.byteLength(one.trait_type + one.value)) < 0);
  return end < 0 ? all : all.slice(0, end);
}

function listOfAttributes(value: unknown): Metadata['attributes'] {
  if (Array.isArray(value)) {
    return value.slice(0, MAX_ATTRIBUTES).flatMap((entry: unknown) => {
      if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) return [];
      const own: Readonly<Record<string, unknown>> = { ...entry };
      return [
        {
          trait_type: plain(own['trait_type'], MAX_NAME) ?? '',
          value: asText(own['value']),
        },
      ];
    });
  }
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value)
    .slice(0, MAX_ATTRIBUTES)
    .map(([name, own]) => ({ trait_type: cut(name, MAX_NAME), value: asText(own) }));
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

/** A picture as an address. In an <img> its scripts do not run. */
const svgUri = (markup: string): string =>
  `data:image/svg+xml;base64,${Buffer.from(markup).toString('base64')}`;

const CID = /^(Qm[1-9A-HJ-NP-Za-km-z]{44}|baf[a-z2-7]{20,})(\/|$)/;

/**
 * A URI that can be shown as a picture, a film or a sound: https, http, IPFS, Arweave, or one that holds the picture
 * itself. Whatever could run, or read a client's files (`javascript:`, `data:text/html`, `file:`), is none.
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

/** The same for a page: one that is inside a document would be a page of ours. */
function webLink(value: unknown): string | null {
  const found = link(value);
  return found === null || /^data:/i.test(found) ? null : found;
}
