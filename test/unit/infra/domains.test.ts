import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { domainAndParents, normalDomain } from '../../../infra/domains.ts';
import { domainName } from '../../../schemas/catalogue.ts';

describe('normalDomain', () => {
  it.each([
    ['EVIL.Example', 'evil.example'],
    ['  evil.example\n', 'evil.example'],
    ['evil.example.', 'evil.example'],
    ['evil.example:8443', 'evil.example'],
    ['www.evil.example', 'evil.example'],
    ['WWW.www.Evil.example.:80', 'evil.example'],
    ['https://app.evil.example/claim?x=1#y', 'app.evil.example'],
    // What stands before the @ is a name that nobody goes to.
    ['https://good.example@evil.example/', 'evil.example'],
    ['http://good.example\\@evil.example/', 'good.example'],
    ['bücher.de', 'xn--bcher-kva.de'],
    ['BÜCHER.de', 'xn--bcher-kva.de'],
    ['bu\u0308cher.de', 'xn--bcher-kva.de'],
    ['XN--BCHER-KVA.de', 'xn--bcher-kva.de'],
    ['faß.de', 'xn--fa-hia.de'],
    ['аргент.xyz', 'xn--80agg6amp.xyz'],
    ['ｅｖｉｌ。example．', 'evil.example'],
    ['ev\u00adil.example', 'evil.example'],
    ['a_b.example', 'a_b.example'],
    ['a-.tumblr.com', 'a-.tumblr.com'],
    ['argent.eth', 'argent.eth'],
    ['localhost', 'localhost'],
    ['203.0.113.7:80', '203.0.113.7'],
    ['[2001:DB8:0::1]:80', '[2001:db8::1]'],
    // `www` is somebody's name here: what is left would be a public suffix.
    ['www.gov.uk', 'www.gov.uk'],
    ['www.com', 'www.com'],
    ['www.someone.github.io', 'someone.github.io'],
  ])('%j is %s', (text, domain) => {
    expect(normalDomain(text)).toBe(domain);
  });

  it.each([
    '',
    ' ',
    '.',
    '..',
    'a..b',
    '.evil.example',
    'evil.example..',
    'evil example',
    'evil.\texample',
    'evil.example\0',
    'ev%69l.example',
    '*.evil.example',
    'evil.example/claim',
    'a@evil.example',
    'a,b',
    'http://',
    'https:///',
    'ftp://evil.example',
    'evil.example:65536',
    'evil.example:x',
    '[::1',
    '::1',
    '2130706433',
    '0x7f000001',
    '127.1',
    '0177.0.0.1',
    '１２７.0.0.1',
    'http://2130706433/127.0.0.1',
    '1.2.3.256',
    'a.1.2.3.4',
    `${'a'.repeat(64)}.example`,
    '\ud800.example',
    'evil\\.example',
    `${`${'a'.repeat(49)}.`.repeat(5)}exam`,
  ])('%j is none', (text) => {
    expect(normalDomain(text)).toBeNull();
  });

  it('takes names to 253 characters', () => {
    expect(normalDomain(`${`${'a'.repeat(49)}.`.repeat(5)}exa`)).toHaveLength(253);
  });

  const label = fc.stringMatching(/^[a-z]([a-z0-9-]{0,8}[a-z0-9])?$/).filter((text) => text !== 'www');
  const name = fc
    .array(label, { minLength: 2, maxLength: 5 })
    .map((labels) => labels.join('.'))
    // Punycode that is none would be refused.
    .filter((text) => !text.includes('xn--'));
  const upper = fc.array(fc.boolean(), { minLength: 60, maxLength: 60 });
  const inCases = (text: string, isUpper: readonly boolean[]): string =>
    Array.from(text, (one, at) => (isUpper[at] === true ? one.toUpperCase() : one)).join('');

  it('is the same for every spelling of a host', () => {
    const port = fc.integer({ min: 0, max: 65_535 }).map((number) => `:${number}`);
    fc.assert(
      fc.property(
        name,
        upper,
        fc.constantFrom('', 'http://', 'HTTPS://'),
        fc.constantFrom('', '.', '。', '．'),
        fc.oneof(fc.constant(''), port),
        (plain, isUpper, scheme, dot, behind) => {
          expect(normalDomain(scheme + inCases(plain, isUpper) + dot + behind)).toBe(plain);
        },
      ),
    );
  });

  it('changes nothing that it gave, and gives only what can be listed', () => {
    const near = fc
      .array(
        fc.constantFrom('www.', '.', 'a', 'ü', 'co.uk', 'github.io', '1', ':80', '-', '。', 'ß', '[::1]'),
        {
          minLength: 1,
          maxLength: 8,
        },
      )
      .map((parts) => parts.join(''));
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.webUrl(), near, name), (text) => {
        const domain = normalDomain(text);
        if (domain === null) return;
        expect(normalDomain(domain)).toBe(domain);
        expect(domainName.safeParse(domain).success).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it('names the host that a browser would open', () => {
    fc.assert(
      fc.property(fc.webUrl(), (link) => {
        const { hostname } = new URL(link);
        const domain = normalDomain(link);
        if (domain !== null) expect([domain, `www.${domain}`, `${domain}.`]).toContain(hostname);
      }),
    );
  });
});

describe('domainAndParents', () => {
  it.each([
    ['a.b.evil.example', ['a.b.evil.example', 'b.evil.example', 'evil.example']],
    ['a.evil.co.uk', ['a.evil.co.uk', 'evil.co.uk']],
    ['evil.co.uk', ['evil.co.uk']],
    ['co.uk', ['co.uk']],
    ['a.someone.github.io', ['a.someone.github.io', 'someone.github.io']],
    ['someone.github.io', ['someone.github.io']],
    ['github.io', ['github.io']],
    ['a.app.vercel.app', ['a.app.vercel.app', 'app.vercel.app']],
    ['a.b.kawasaki.jp', ['a.b.kawasaki.jp']],
    ['a.city.kawasaki.jp', ['a.city.kawasaki.jp', 'city.kawasaki.jp']],
    ['a.argent.eth', ['a.argent.eth', 'argent.eth']],
    ['a.xn--bcher-kva.de', ['a.xn--bcher-kva.de', 'xn--bcher-kva.de']],
    ['localhost', ['localhost']],
    ['203.0.113.7', ['203.0.113.7']],
    ['[2001:db8::1]', ['[2001:db8::1]']],
  ])('%s', (domain, expected) => {
    expect(domainAndParents(domain)).toEqual(expected);
  });
});
