import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';

import { parseNetwork } from '../../../../infra/networks.ts';
import { createEgress } from '../../../../pipeline/egress/egress.ts';

/** `checkUrl` with hosts that resolve to given addresses, without any connection. */

let addresses: readonly string[] = [];
const egress = createEgress({
  allowNetworks: ['10.1.0.0/16', '169.254.0.0/16', '64:ff9b::/96', '198.51.100.7'].map((text) =>
    parseNetwork(text)!,
  ),
  ownPorts: [5432, 8080],
  resolve: async () => addresses,
});
afterAll(() => egress.close());

function check(url: string, ...resolved: readonly string[]): Promise<string | null> {
  addresses = resolved;
  return egress.checkUrl(url);
}

const BLOCKED = 'The host has an address that may not be called.';
const INSECURE = 'The URL must use https.';

describe('checkUrl', () => {
  it.each([
    '',
    'hooks',
    '//hooks.example',
    'https://',
    'https://a b',
    'http://[::1%25lo]/',
    'https://1.2.3.256/',
    'https://x:99999/',
  ])('refuses the invalid URL %j', async (url) => {
    expect(await check(url, '1.1.1.1')).toBe('The URL is not valid.');
  });
  it.each([
    'ftp://hooks.example/',
    'file:///etc/passwd',
    'javascript:1',
    'ws://hooks.example/',
    'hooks.example:443',
  ])('refuses the scheme of %s', async (url) => {
    expect(await check(url, '1.1.1.1')).toBe(INSECURE);
  });
  it.each([
    'https://user@hooks.example/',
    'https://user:password@hooks.example/',
    'https://:@x:y@hooks.example/',
  ])('refuses credentials in %s', async (url) => {
    expect(await check(url, '1.1.1.1')).toBe('The URL must not contain a user name or a password.');
  });
  it('refuses a host without an address', async () => {
    expect(await check('https://hooks.example/')).toBe('The host does not resolve.');
  });
  it('refuses http before it resolves the host when no network is allowed', async () => {
    const strict = createEgress({
      allowNetworks: [],
      ownPorts: [],
      resolve: async () => {
        throw new Error('resolved for nothing');
      },
    });
    expect(await strict.checkUrl('http://hooks.example/')).toBe(INSECURE);
    await strict.close();
  });
  it('asks for https when the host of an http URL has no address', async () => {
    expect(await check('http://hooks.example/')).toBe(
      'The URL must use https, unless its host resolves to an allowed network.',
    );
  });
});

describe('checkUrl of a host', () => {
  it.each([
    ['https://h/', ['1.1.1.1'], null],
    ['https://h:8443/x?y#z', ['1.1.1.1', '2606:4700::1111'], null],
    ['https://H./', ['1.1.1.1'], null],
    ['http://h/', ['1.1.1.1'], INSECURE],
    ['https://h/', ['127.0.0.1'], BLOCKED],
    ['https://h/', ['1.1.1.1', '127.0.0.1'], BLOCKED],
    ['https://h/', ['1.1.1.1', '::1'], BLOCKED],
    ['https://h/', ['1.1.1.1', 'nonsense'], BLOCKED],
    ['https://h/', ['fe80::1%eth0'], BLOCKED],
    // Allowed networks: by http as well, but not at the service's own ports.
    ['http://h/', ['10.1.2.3'], null],
    ['http://h/', ['10.1.2.3', '10.1.2.4'], null],
    ['http://h/', ['::ffff:10.1.2.3'], null],
    ['http://h/', ['10.1.2.3', '10.2.0.1'], BLOCKED],
    ['http://h/', ['10.1.2.3', '1.1.1.1'], INSECURE],
    ['http://h/', ['1.1.1.1', '10.1.2.3'], INSECURE],
    ['https://h/', ['10.1.2.3', '1.1.1.1'], null],
    ['https://h:5432/', ['10.1.2.3'], BLOCKED],
    ['http://h:8080/', ['10.1.2.3'], BLOCKED],
    ['https://h:8080/', ['1.1.1.1'], null],
    ['http://h:8081/', ['198.51.100.7'], null],
    ['http://h:8081/', ['198.51.100.8'], BLOCKED],
    // Metadata services are refused even in allowed networks.
    ['http://h/', ['169.254.169.254'], BLOCKED],
    ['http://h/', ['64:ff9b::a9fe:a9fe'], BLOCKED],
    ['http://h/', ['64:ff9b::101:101'], null],
  ] as const)('answers %s at %j with %j', async (url, resolved, answer) => {
    expect(await check(url, ...resolved)).toBe(answer);
  });

  it('accepts only hosts whose addresses are all accepted', async () => {
    const good = fc.constantFrom<string>('1.1.1.1', '8.8.4.4', '2606:4700::1111', '10.1.200.1');
    const bad = fc.constantFrom<string>(
      '127.0.0.1',
      '10.2.0.1',
      '::1',
      'fd00::1',
      '169.254.1.1',
      '100.64.0.1',
      '::7f00:1',
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(good, { maxLength: 5 }),
        fc.array(bad, { maxLength: 2 }),
        fc.nat(6),
        async (accepted, refused, at) => {
          fc.pre(accepted.length + refused.length > 0);
          const all = accepted.toSpliced(at, 0, ...refused);
          expect(await check('https://h/', ...all)).toBe(refused.length === 0 ? null : BLOCKED);
        },
      ),
    );
  });
});
