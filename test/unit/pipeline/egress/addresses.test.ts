import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { parseAddress } from '../../../../infra/networks.ts';
import { reachOf } from '../../../../pipeline/egress/addresses.ts';

/** Computed with integers from IANA's special-purpose address registries and the cloud providers' manuals. */
const v4 = (text: string): bigint => text.split('.').reduce((sum, part) => sum * 256n + BigInt(part), 0n);
function v6(text: string): bigint {
  const [head = '', tail = ''] = text.split('::');
  const groups = (half: string): string[] => (half === '' ? [] : half.split(':'));
  const zeros = Array.from({ length: 8 - groups(head).length - groups(tail).length }, () => '0');
  const all = text.includes('::') ? [...groups(head), ...zeros, ...groups(tail)] : groups(head);
  return all.reduce((sum, group) => sum * 65_536n + BigInt(`0x${group}`), 0n);
}
const text4 = (value: bigint): string => [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 255n).join('.');
const text6 = (value: bigint): string =>
  Array.from({ length: 8 }, (_, index) => ((value >> BigInt(112 - 16 * index)) & 0xffffn).toString(16)).join(
    ':',
  );

type Block = readonly [first: bigint, last: bigint];
function blocks(size: number, parse: (text: string) => bigint, texts: readonly string[]): Block[] {
  return texts.map((text) => {
    const [base = '', bits = String(size)] = text.split('/');
    return [parse(base), parse(base) + (1n << BigInt(size - Number(bits))) - 1n];
  });
}
const isIn = (value: bigint, list: readonly Block[]): boolean =>
  list.some(([first, last]) => value >= first && value <= last);

const SPECIAL_4 = blocks(32, v4, [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
]);
const METADATA_4 = blocks(32, v4, ['169.254.0.0/16', '100.100.100.200', '168.63.129.16', '192.0.0.192']);
const GLOBAL_6 = blocks(128, v6, ['2000::/3']);
const SPECIAL_6 = blocks(128, v6, [
  '2001::/23',
  '2001:db8::/32',
  '2002::/16',
  '2620:4f:8000::/48',
  '3fff::/20',
]);
const METADATA_6 = blocks(128, v6, ['fe80::/10', 'fd00:ec2::/32', 'fd20:ce::254', 'fd00:42::42']);
/** Ranges whose last 32 bits are an IPv4 address. */
const EMBEDDING = blocks(128, v6, ['::/96', '64:ff9b::/96', '64:ff9b:1::/48', '0:0:0:0:ffff::/96']);
const MAPPED = blocks(128, v6, ['0:0:0:0:0:ffff:0:0/96']);

function expected4(value: bigint): string {
  if (isIn(value, METADATA_4)) return 'metadata';
  return isIn(value, SPECIAL_4) ? 'private' : 'public';
}
function expected6(value: bigint): string {
  const last = value & 0xffff_ffffn;
  if (isIn(value, MAPPED)) return expected4(last);
  const isIsatap =
    ((value >> 32n) & 0xffff_ffffn) === 0x5efen || ((value >> 32n) & 0xffff_ffffn) === 0x200_5efen;
  const embedded = [
    ...(isIn(value, EMBEDDING) || isIsatap ? [last] : []),
    ...(value >> 112n === 0x2002n ? [(value >> 80n) & 0xffff_ffffn] : []),
    ...(value >> 96n === 0x2001_0000n ? [last ^ 0xffff_ffffn] : []),
  ];
  if (isIn(value, METADATA_6) || embedded.some((inner) => isIn(inner, METADATA_4))) return 'metadata';
  return isIn(value, GLOBAL_6) && !isIn(value, SPECIAL_6) ? 'public' : 'private';
}

function reach(text: string): string {
  const address = parseAddress(text);
  if (address === null) throw new Error(`${text} is not an address`);
  return reachOf(address);
}

const edgesOf = (list: readonly Block[], size: bigint): bigint[] =>
  list
    .flatMap(([first, last]) => [first - 1n, first, last, last + 1n])
    .filter((value) => value >= 0n && value < 1n << size);
const near4 = edgesOf([...SPECIAL_4, ...METADATA_4], 32n);
const near6 = edgesOf([...GLOBAL_6, ...SPECIAL_6, ...METADATA_6, ...EMBEDDING, ...MAPPED], 128n);
const any4 = fc.oneof(fc.bigInt({ min: 0n, max: (1n << 32n) - 1n }), fc.constantFrom(...near4));
const any6 = fc.oneof(
  fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }),
  fc.bigInt({ min: v6('2000::'), max: v6('3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff') }),
  fc.constantFrom(...near6),
);

describe('reachOf', () => {
  it('is right at both ends of every special range, and next to them', () => {
    for (const value of near4)
      expect([text4(value), reach(text4(value))]).toEqual([text4(value), expected4(value)]);
    for (const value of near6)
      expect([text6(value), reach(text6(value))]).toEqual([text6(value), expected6(value)]);
  });

  it('is right for any IPv4 address, and for its IPv6 mapping', () => {
    fc.assert(
      fc.property(any4, (value) => {
        expect(reach(text4(value))).toBe(expected4(value));
        expect(reach(`::ffff:${text4(value)}`)).toBe(expected4(value));
      }),
      { numRuns: 2000 },
    );
  });

  it('is right for any IPv6 address', () => {
    fc.assert(
      fc.property(any6, (value) => {
        expect(reach(text6(value))).toBe(expected6(value));
      }),
      { numRuns: 2000 },
    );
  });

  it('is never public for an IPv6 address with an embedded IPv4 address, and metadata if that is', () => {
    fc.assert(
      fc.property(any4, (inner) => {
        const outer = [
          ...EMBEDDING.map(([first]) => first + inner),
          v6('2002::') + (inner << 80n),
          v6('2001::') + (inner ^ 0xffff_ffffn),
          v6('fc00::5efe:0:0') + inner,
        ];
        const isMetadata = isIn(inner, METADATA_4);
        expect(outer.map((value) => reach(text6(value)))).toEqual(
          outer.map(() => (isMetadata ? 'metadata' : 'private')),
        );
      }),
    );
  });

  it.each(['1.1.1.1', '8.8.8.8', '172.15.255.255', '192.0.1.1', '2606:4700::1111', '2a00:1450::1'])(
    'is public at %s',
    (text) => {
      expect(reach(text)).toBe('public');
    },
  );
  it.each([
    '169.254.169.254',
    'fd00:ec2::254',
    '100.100.100.200',
    '168.63.129.16',
    '64:ff9b::a9fe:a9fe',
    // ISATAP in a public prefix, with the bit of a globally unique IPv4 address not set and set.
    '2a00::5efe:169.254.169.254',
    '2a00::200:5efe:169.254.169.254',
  ])('is metadata at %s', (text) => {
    expect(reach(text)).toBe('metadata');
  });
});
