import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { ipfsPath, normalizeUri, throughGateway, substituteTokenId } from '../../../../schemas/nft/uris.ts';

const GATEWAY = 'https://gateway.example';

describe('a URI', () => {
  it.each([
    ['ipfs://QmA/1.json', 'https://gateway.example/ipfs/QmA/1.json'],
    ['ipfs://ipfs/QmA/1.json', 'https://gateway.example/ipfs/QmA/1.json'],
    ['IPFS://QmA', 'https://gateway.example/ipfs/QmA'],
    ['ipfs:/QmA', 'https://gateway.example/ipfs/QmA'],
    [' ipfs://QmA/a b.json ', 'https://gateway.example/ipfs/QmA/a b.json'],
    ['ipfs://QmA/#1.png', 'https://gateway.example/ipfs/QmA/%231.png'],
    ['https://other.example/ipfs/ipfs://QmA/1', 'https://gateway.example/ipfs/QmA/1'],
    ['https://other.example/ipfs/ipfs://ipfs/QmA/1', 'https://gateway.example/ipfs/QmA/1'],
    ['https://gateway.example/ipfs/https://x.example/ipfs/ipfs://QmA', 'https://gateway.example/ipfs/QmA'],
    ['ipfs://QmA/../../admin', 'https://gateway.example/ipfs/QmA/admin'],
    ['ipfs://../%2e%2e/admin\\..\\x', 'https://gateway.example/ipfs/admin/x'],
    ['https://other.example/ipfs/QmA', 'https://other.example/ipfs/QmA'],
    ['https://other.example/?u=ipfs://QmA', 'https://other.example/?u=ipfs://QmA'],
    ['data:application/json,{"a":"https://x/ipfs://y"}', 'data:application/json,{"a":"https://x/ipfs://y"}'],
    ['', ''],
  ])('%s is found at %s', (uri, url) => {
    expect(throughGateway(uri, GATEWAY)).toBe(url);
  });

  it.each([
    ['https://gateway.example/ipfs', 'https://gateway.example/ipfs/QmA'],
    ['https://gateway.example/ipfs/', 'https://gateway.example/ipfs/QmA'],
    ['http://127.0.0.1:8080/', 'http://127.0.0.1:8080/ipfs/QmA'],
    ['https://gateway.example/deep/', 'https://gateway.example/deep/ipfs/QmA'],
  ])('goes through the gateway %s as %s', (gateway, url) => {
    expect(throughGateway('ipfs://QmA', gateway)).toBe(url);
  });

  it.each(['..%2f..%2fapi', '%2E%2e%5capi', './/..\\api'])(
    'cannot leave the gateway folder by %s',
    (path) => {
      expect(throughGateway(`ipfs://${path}`, GATEWAY)).toBe(`${GATEWAY}/ipfs/api`);
    },
  );

  it('uses arweave.net for Arweave', () => {
    expect(throughGateway('ar://abc/1.json', GATEWAY)).toBe('https://arweave.net/abc/1.json');
  });

  it('never leaves the gateway folder, for any path', () => {
    const part = fc.constantFrom(
      '..',
      '.',
      '%2e%2e',
      '%2E.',
      '/',
      '\\',
      'a',
      '%2f',
      '?',
      '#',
      ':',
      '@',
      ' ',
      '\n',
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
        const uri = `ipfs://${parts.join('')}`;
        if (ipfsPath(uri) === null) return;
        expect(new URL(throughGateway(uri, GATEWAY)).href.startsWith(`${GATEWAY}/ipfs/`)).toBe(true);
      }),
      { numRuns: 5000 },
    );
  });

  it('normalizes idempotently', () => {
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 0, max: 3 }), (path, times) => {
        const uri = `${'https://g.example/ipfs/'.repeat(times)}ipfs://Qm${path.trim()}`.trim();
        expect(normalizeUri(uri)).toBe(`ipfs://Qm${path.trim()}`);
        expect(normalizeUri(normalizeUri(uri))).toBe(normalizeUri(uri));
      }),
    );
  });
});

it('replaces {id} by 64 hex digits', () => {
  expect(substituteTokenId('https://x/{id}/{id}.json', 314_592n)).toBe(
    `https://x/${'0'.repeat(59)}4cce0/${'0'.repeat(59)}4cce0.json`,
  );
  expect(substituteTokenId('a', (1n << 256n) - 1n)).toBe('a');
  expect(substituteTokenId('{id}', (1n << 256n) - 1n)).toBe('f'.repeat(64));
});
