import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { readDataUri } from '../../../../../pipeline/observe/nft/data-uri.ts';
import { readMetadata } from '../../../../../pipeline/observe/nft/document.ts';
import { MetadataFailure } from '../../../../../pipeline/observe/nft/failure.ts';
import { nftMessage } from '../../../../../schemas/messages/nft.ts';
import { isStorable } from '../../../../../schemas/text.ts';

const ID = 0x1fn;
const read = (text: string | Buffer, type = 'application/json') =>
  readMetadata({ bytes: Buffer.from(text), type, uri: 'https://x.example/1' }, ID);
const json = (document: unknown) => read(JSON.stringify(document));
const empty = {
  name: null,
  description: null,
  image: null,
  external_url: null,
  animation_url: null,
  attributes: [],
};

describe('readMetadata', () => {
  it('reads every field', () => {
    const document = {
      name: 'Crab',
      description: 'It walks.',
      image: 'ipfs://QmA/1.png',
      external_url: 'https://crabs.example/1',
      animation_url: 'https://crabs.example/1.mp4',
      attributes: [{ trait_type: 'claws', value: 'two' }],
    };
    expect(json(document)).toEqual(document);
  });

  it('replaces {id} in every value', () => {
    const hex = `${'0'.repeat(62)}1f`;
    const document = {
      name: '#{id}',
      image: 'https://items.example/{id}.png?of={id}',
      attributes: [{ trait_type: '{id}', value: { '{id}': ['{id}'] } }],
    };
    expect(json(document)).toEqual({
      ...empty,
      name: `#${hex}`,
      image: `https://items.example/${hex}.png?of=${hex}`,
      attributes: [{ trait_type: hex, value: `{"{id}":["${hex}"]}` }],
    });
  });

  it.each([null, 1, true, 'text', [1], { a: 1 }, '', 1.5e300])('accepts %j in every field', (value) => {
    const shown = typeof value === 'number' || typeof value === 'boolean' ? String(value) : null;
    const plain = typeof value === 'string' ? value : shown;
    const fields = ['name', 'description', 'image', 'external_url', 'animation_url', 'attributes'];
    const found = json(Object.fromEntries(fields.map((field) => [field, value])));
    expect(found).toEqual({
      ...empty,
      name: value === 1.5e300 ? '1.5e+300' : plain,
      description: value === 1.5e300 ? '1.5e+300' : plain,
      attributes:
        typeof value === 'object' && value !== null && !Array.isArray(value)
          ? [{ trait_type: 'a', value: '1' }]
          : [],
    });
  });

  it('keeps numbers as written', () => {
    expect(
      read(
        '{"name":12345678901234567890,"attributes":[{"trait_type":1,"value":0.10},{"value":false},{"trait_type":null,"value":[1]},{"trait_type":"none","value":null},7,null]}',
      ),
    ).toEqual({
      ...empty,
      name: '12345678901234567890',
      attributes: [
        { trait_type: '1', value: '0.10' },
        { trait_type: '', value: 'false' },
        { trait_type: '', value: '["1"]' },
        { trait_type: 'none', value: '' },
      ],
    });
  });

  it.each([
    ['javascript:alert(1)', null],
    ['data:text/html,<script>alert(1)</script>', null],
    ['DATA:TEXT/HTML;base64,AAAA', null],
    ['file:///etc/passwd', null],
    ['blob:x', null],
    ['x.png', null],
    ['<p>', null],
    ['https://x.example/1.png', 'https://x.example/1.png'],
    ['data:image/png;base64,AAAA', 'data:image/png;base64,AAAA'],
    ['ar://abc', 'ar://abc'],
    [
      'QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG/1.png',
      'ipfs://QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG/1.png',
    ],
    ['/ipfs/QmA/1.png', 'ipfs://QmA/1.png'],
    [`https://x.example/${'a'.repeat(5000)}`, null],
    [`data:image/png;base64,${'A'.repeat(600_000)}`, null],
  ])('reads the image %s', (image, expected) => {
    expect(json({ image }).image).toBe(expected);
  });

  it('returns SVG markup only as an image', () => {
    const svg = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>';
    const uri = `data:image/svg+xml;base64,${Buffer.from(svg).toString('base64')}`;
    expect(json({ image_data: svg }).image).toBe(uri);
    expect(json({ image: `<?xml version="1.0"?>\n${svg}` }).image).toContain('data:image/svg+xml;base64,');
    expect(read(svg, 'text/html').image).toBe(uri);
    expect(read(svg, 'image/svg+xml').image).toBe('https://x.example/1');
    expect(json({ external_url: uri }).external_url).toBeNull();
  });

  it.each([
    ['', 'the metadata is not a JSON object'],
    ['<!doctype html><p>no', 'the metadata is not a JSON object'],
    ['[]', 'the metadata is not a JSON object'],
    ['"x"', 'the metadata is not a JSON object'],
    ['null', 'the metadata is not a JSON object'],
    ['{"name":', 'the metadata is not a JSON object'],
    [`{"a":${'['.repeat(300_000)}`, 'the metadata is nested deeper than 64'],
    [`${'{"a":'.repeat(65)}1${'}'.repeat(65)}`, 'the metadata is nested deeper than 64'],
  ])('refuses invalid document %# with a reason', (text, reason) => {
    expect(() => read(text)).toThrow(new MetadataFailure('unavailable', reason));
  });

  it('truncates long values and ignores brackets inside strings', () => {
    const found = json({
      name: '['.repeat(2000),
      description: '🦀'.repeat(9000),
      attributes: Array.from({ length: 3000 }, (_, value) => ({ trait_type: 't', value })),
    });
    expect(found.name).toBe(`${'['.repeat(1000)}…`);
    expect(found.description).toBe(`${'🦀'.repeat(5000)}…`);
    expect(found.attributes).toHaveLength(500);
    // Three bytes in UTF-8.
    const wide = '\uFFFD'.repeat(1000);
    const attributes = Array.from({ length: 400 }, () => ({ trait_type: wide, value: wide }));
    const limited = json({ attributes });
    expect(limited.attributes).toHaveLength(10);
    expect(read('\uFEFF{"name":"a\\u0000\\ud800"}').name).toBe('a\u2400\uFFFD');
  });

  it('makes a storable message of any JSON', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.constantFrom('name', 'image', 'attributes', '__proto__', 'x'), fc.jsonValue()),
        (document) => {
          const found = json(document);
          const message = {
            type: 'nft.metadata_fetched',
            v: 1,
            token: `0x${'0'.repeat(64)}`,
            token_id: '0',
            uri: '',
          };
          expect(nftMessage.safeParse({ ...message, ...found, observed_at: 0 }).success).toBe(true);
          for (const text of [
            found.name,
            ...found.attributes.flatMap((attribute) => Object.values(attribute)),
          ])
            expect(text === null || isStorable(text)).toBe(true);
        },
      ),
    );
  });

  it('never throws anything but MetadataFailure', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        try {
          read(Buffer.from(bytes));
        } catch (error) {
          expect(error).toBeInstanceOf(MetadataFailure);
        }
      }),
    );
  });
});

describe('readDataUri', () => {
  it.each([
    ['data:application/json;base64,eyJhIjoxfQ==', 'application/json', '{"a":1}'],
    ['data:application/json;charset=utf-8;base64,eyJhIjoxfQ', 'application/json', '{"a":1}'],
    ['data:application/json,{"a":"100%, #1 %F0%9F%A6%80"}', 'application/json', '{"a":"100%, #1 🦀"}'],
    ['data:application/json;utf8,%7B%22a%22%3A1%7D', 'application/json', '{"a":1}'],
    ['DATA:,x', '', 'x'],
    ['data:Image/SVG+xml;utf8,<svg>\n</svg>', 'image/svg+xml', '<svg>\n</svg>'],
  ])('decodes %s', (uri, type, text) => {
    const found = readDataUri(uri);
    expect([found?.type, found?.bytes.toString()]).toEqual([type, text]);
  });

  it.each(['', 'https://x', 'data', 'data:text/plain'])('returns null for %j', (uri) => {
    expect(readDataUri(uri)).toBeNull();
  });

  it('decodes what was encoded', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        const base64 = `data:x/y;base64,${Buffer.from(text).toString('base64')}`;
        expect(readDataUri(base64)?.bytes.toString()).toBe(text);
        expect(readDataUri(`data:,${encodeURIComponent(text)}`)?.bytes.toString()).toBe(text);
      }),
    );
  });
});
