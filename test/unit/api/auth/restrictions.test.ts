import { describe, expect, it } from 'vitest';

import { findViolation, matchesOrigin, parseOriginRule } from '../../../../api/auth/restrictions.ts';

const matches = (rule: string, origin: string): boolean => matchesOrigin(origin, parseOriginRule(rule)!);

describe('origins', () => {
  it.each([
    ['https://example.org', 'https://example.org'],
    ['https://example.org/', 'https://example.org'],
    ['https://example.org:443', 'https://example.org'],
    ['HTTPS://Example.ORG', 'https://example.org'],
    ['https://example.org:8443', 'https://example.org:8443'],
    ['example.org', 'https://example.org'],
    ['example.org', 'http://example.org'],
    ['localhost:3000', 'http://localhost:3000'],
    ['example.org:80', 'http://example.org'],
    ['example.org:443', 'https://example.org'],
    ['*.example.org', 'https://app.example.org'],
    ['*.example.org', 'https://a.b.example.org'],
    ['https://*.example.org', 'https://app.example.org'],
    ['bücher.example', 'https://xn--bcher-kva.example'],
    ['[::1]:3000', 'http://[::1]:3000'],
    ['chrome-extension://abcdef', 'chrome-extension://abcdef'],
  ])('%s lets %s in', (rule, origin) => {
    expect(matches(rule, origin)).toBe(true);
  });

  it.each([
    ['https://example.org', 'http://example.org'],
    ['https://example.org', 'https://example.org:8443'],
    ['https://example.org', 'https://example.org.evil.test'],
    ['https://example.org', 'https://evil.test/https://example.org'],
    ['https://example.org', 'https://example.org@evil.test'],
    ['https://example.org', 'https://evilexample.org'],
    ['https://example.org', 'null'],
    ['https://example.org', ''],
    ['example.org', 'https://app.example.org'],
    ['example.org', 'ftp://example.org'],
    ['example.org', 'https://example.org:8443'],
    ['example.org:443', 'http://example.org'],
    ['*.example.org', 'https://example.org'],
    ['*.example.org', 'https://notexample.org'],
    ['https://*.example.org', 'http://app.example.org'],
  ])('%s keeps %s out', (rule, origin) => {
    expect(matches(rule, origin)).toBe(false);
  });

  it.each([
    '',
    '*',
    'https://',
    'https://example.org/path',
    'https://a b',
    'a.*.org',
    '*.*.org',
    'user@host',
    'http://*',
  ])('%j is no rule', (rule) => {
    expect(parseOriginRule(rule)).toBeNull();
  });
});

describe('findViolation', () => {
  const none = { allowedOrigins: [], allowedIps: [] };
  const origins = { allowedOrigins: ['https://a.test', '*.b.test'], allowedIps: [] };
  const ips = { allowedOrigins: [], allowedIps: ['198.51.100.0/24', '2001:db8::1'] };
  const both = { allowedOrigins: ['https://a.test'], allowedIps: ['198.51.100.7'] };
  it.each([
    [none, '', '203.0.113.9', null],
    [none, 'https://x.test', '203.0.113.9', null],
    [origins, 'https://a.test', '203.0.113.9', null],
    [origins, 'https://x.b.test', '203.0.113.9', null],
    [origins, 'https://b.test', '203.0.113.9', 'origin'],
    // Without an origin the other axis counts, and its empty list lets everything in.
    [origins, '', '203.0.113.9', null],
    [ips, '', '198.51.100.200', null],
    [ips, '', '::ffff:198.51.100.200', null],
    [ips, '', '2001:DB8:0::1', null],
    [ips, '', '198.51.101.1', 'ip'],
    [ips, '', '', 'ip'],
    [ips, 'https://x.test', '203.0.113.9', null],
    [both, 'https://a.test', '203.0.113.9', null],
    [both, 'https://x.test', '198.51.100.7', 'origin'],
    [both, '', '198.51.100.7', null],
    [both, '', '198.51.100.8', 'ip'],
  ] as const)('%j, origin %j from %s: %s', (restrictions, origin, ip, expected) => {
    expect(findViolation(restrictions, { origin, ip })).toBe(expected);
  });
});
