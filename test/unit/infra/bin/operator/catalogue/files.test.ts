import { stringify } from 'csv-stringify/sync';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { readCell, writeCell } from '../../../../../../infra/bin/operator/catalogue/cells.ts';
import { Faults, checkRecords } from '../../../../../../infra/bin/operator/catalogue/check.ts';
import { fieldsOf } from '../../../../../../infra/bin/operator/catalogue/formats.ts';
import type { FileKind } from '../../../../../../infra/bin/operator/catalogue/formats.ts';
import { csvReader, readJson } from '../../../../../../infra/bin/operator/catalogue/read-file.ts';
import type { Found, ReadFile } from '../../../../../../infra/bin/operator/catalogue/read-file.ts';
import { allOf, withFile } from '../../../../../support/files.ts';

const foundIn = async (read: ReadFile, content: string | Buffer): Promise<Found[]> =>
  await withFile(content, async (path) => await allOf(read(path)));

/** What is wrong with a file, as `line: text`. */
const faultsOf = async (read: ReadFile, content: string | Buffer): Promise<string[]> =>
  await withFile(content, async (path) => {
    const faults = new Faults();
    await allOf(checkRecords(read(path), faults));
    return faults.listed.map(({ line, text }) => `${line}: ${text}`);
  });

const anyText = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.string({
    unit: fc.constantFrom('"', "'", '=', '+', '-', '@', '|', ',', '\n', '\r', '\t', 'a', '＝', '\\', ' '),
  }),
);

describe('a cell', () => {
  it('is read as it was written, whatever text it holds', () => {
    fc.assert(
      fc.property(anyText, (text) => {
        expect(readCell('reason', writeCell(text)) ?? '').toBe(text);
      }),
    );
  });

  it('never begins as a formula', () => {
    fc.assert(
      fc.property(fc.constantFrom('=', '+', '-', '@', '\t', '\r'), anyText, (first, rest) => {
        expect(writeCell(first + rest)).toBe(`'${first}${rest}`);
      }),
    );
  });

  it('holds a list, a number or a flag', () => {
    const anyValue = fc.oneof(
      fc.array(anyText, { minLength: 1 }).map((value) => ['tags', value] as const),
      fc
        .double({ min: 0, noNaN: true, noDefaultInfinity: true })
        .map((value) => ['tvl_usd', Object.is(value, -0) ? 0 : value] as const),
      fc.maxSafeInteger().map((value) => ['priority', value] as const),
      fc.boolean().map((value) => ['active', value] as const),
    );
    fc.assert(
      fc.property(anyValue, ([field, value]) => {
        expect(readCell(field, writeCell(value))).toEqual(value);
      }),
    );
  });

  it.each([
    ['tags', 'a | b|c', ['a', 'b', 'c']],
    ['tags', '["a|b"]', ['a|b']],
    ['tags', '[a', '[a'],
    ['active', 'TRUE', true],
    ['active', 'yes', 'yes'],
    ['priority', '-3', -3],
    ['priority', '3 apples', '3 apples'],
    ['tvl_usd', '1e3', 1000],
    ['tvl_usd', '1.2.3', Number.NaN],
    ['reason', '', undefined],
    ['reason', "'quoted'", "'quoted'"],
  ])('of %s says %j: %j', (field, cell, value) => {
    expect(readCell(field, cell)).toEqual(value);
  });
});

describe('JSON', () => {
  it('is read record by record, each with its line', async () => {
    const text = `{
  "_comment": {"any": ["thing"]},
  "categories": [
    {"slug": "a"}, {"slug":
      "b"},

    7
  ], "domains": [
    {"domain": "é\\u0022",
     "deep": {"tags": [[1], {"x": 2}]}}], "tokens": []
}
`;
    expect(await foundIn(readJson, text)).toEqual([
      { kind: 'categories', line: 4, record: { slug: 'a' } },
      { kind: 'categories', line: 4, record: { slug: 'b' } },
      { kind: 'categories', line: 7, record: 7 },
      { kind: 'domains', line: 9, record: { domain: 'é"', deep: { tags: [[1], { x: 2 }] } } },
    ]);
  });

  it('says the same as a parser of the whole, however it is laid out and wherever a piece of it ends', async () => {
    const kinds = fc.constantFrom<FileKind>('domains', 'dapps', 'tokens');
    // The parser drops a byte order mark at the beginning of a string.
    const name = fc.string({ unit: 'binary' }).filter((text) => !text.startsWith('\ufeff'));
    const document = fc.dictionary(kinds, fc.array(fc.dictionary(name, fc.jsonValue())), {
      noNullPrototype: true,
    });
    await fc.assert(
      fc.asyncProperty(document, fc.constantFrom(0, 1, 3), fc.nat(3), async (value, indent, before) => {
        const text = JSON.stringify(value, null, indent);
        // A piece of a file ends within it.
        const padded = `${' '.repeat((1 << 18) - before)}${text}`;
        const plain: Record<string, unknown[]> = JSON.parse(text);
        const expected = Object.entries(plain).flatMap(([kind, records]) =>
          records.map((record) => ({ kind, record })),
        );
        const found = (await foundIn(readJson, padded)).map((one): unknown =>
          'fault' in one ? one.fault : { kind: one.kind, record: one.record },
        );
        // `__proto__` is no field of anything.
        const shown = (one: unknown): string => JSON.stringify(one).replaceAll('__proto__', '');
        if (!text.includes('__proto__')) expect(shown(found)).toBe(shown(expected));
      }),
      { numRuns: 50 },
    );
  });

  it.each([
    ['', ['1: This is not JSON: unexpected end of file']],
    ['[]', ['1: This is not JSON: use one object with an array of records per kind']],
    ['{"domains": {}}', ['1: domains: use an array of records.']],
    [
      '{"domains": "x",\n"categories": 1}',
      ['1: domains: use an array of records.', '2: categories: use an array of records.'],
    ],
    ['{\n"domain": []}', [expect.stringMatching(/^2: Unknown kind "domain": use categories, /)]],
    [
      '{"domains": [\n1, null]}',
      ['2: domains: each record must be an object.', '2: domains: each record must be an object.'],
    ],
    [
      '{"domains": [\n{"domain":\n"a.example", "domain": "b.example", "status": "pending"}]}',
      ['3: domains: duplicate field "domain".'],
    ],
    ['{"domains": [\n\n{]}', [expect.stringMatching(/^3: This is not JSON: Unexpected /)]],
    ['{"domains": []', ['1: This is not JSON: unexpected end of file']],
    ['{"domains": []}\nx', [expect.stringMatching(/^2: This is not JSON: /)]],
    [Buffer.from('7b0a22ff22', 'hex'), ['2: The file is not UTF-8 text from this line on.']],
    [Buffer.from('22c3', 'hex'), ['1: The file is not UTF-8 text from this line on.']],
    [
      Buffer.concat([
        Buffer.from('{"domains": [\n{"domain": "ä.example"},\n'),
        Buffer.from('ff0a', 'hex'),
        Buffer.from('1]}'),
      ]),
      ['2: domains.status: This field is required.', '3: The file is not UTF-8 text from this line on.'],
    ],
  ])('%j is refused by its line', async (content, expected) => {
    expect(await faultsOf(readJson, content)).toEqual(expected);
  });
});

describe('CSV', () => {
  const domains = csvReader('domains');

  it('is read row by row, each with the line where it begins', async () => {
    const text =
      '\ufeffdomain, status,_note,reason\r\na.example,blacklisted,x,"two\nlines\r\nand ""more"""\n\n\nb.example,pending,,\n"c.example",whitelisted,,x';
    expect(await foundIn(domains, text)).toEqual([
      {
        kind: 'domains',
        line: 2,
        record: { domain: 'a.example', status: 'blacklisted', reason: 'two\nlines\r\nand "more"' },
      },
      { kind: 'domains', line: 7, record: { domain: 'b.example', status: 'pending' } },
      { kind: 'domains', line: 8, record: { domain: 'c.example', status: 'whitelisted', reason: 'x' } },
    ]);
  });

  it('tells the line of every row, whatever its texts hold', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(anyText, anyText), { maxLength: 8 }), async (rows) => {
        const lines = rows.map((row) => stringify([row.map(writeCell)], { quoted_string: true }));
        let line = 2;
        const expected = rows.map(([category, reason], at) => {
          const found = { line, record: { category, reason } };
          line += (lines[at] ?? '').split('\n').length - 1;
          return found;
        });
        const found = await foundIn(domains, `category,reason\n${lines.join('')}`);
        expect(
          found.map((one) => ({
            line: one.line,
            record: { category: '', reason: '', ...('record' in one ? Object(one.record) : {}) },
          })),
        ).toEqual(expected);
      }),
      { numRuns: 50 },
    );
  });

  it.each([
    ['', ['1: The header line, which names the fields, is missing.']],
    [
      'domain,statos,domain\na.example,pending,b.example\n',
      [
        '1: domains: there is no field "statos".',
        '1: Duplicate field "domain".',
        '2: domains.status: This field is required.',
      ],
    ],
    [
      'domain,status\na.example\nb.example,pending,x\n',
      [
        '2: The row has 1 cells, but the header line has 2.',
        '3: The row has 3 cells, but the header line has 2.',
      ],
    ],
    ['domain,status\na.example,"pending\n', [expect.stringMatching(/^2: This is not CSV: /)]],
    ['domain,status\na.example,pend"ing\n', [expect.stringMatching(/^2: This is not CSV: /)]],
    [Buffer.from('646f6d61696e0aff', 'hex'), [expect.stringMatching(/: The file is not UTF-8 text/)]],
  ])('%j is refused by its line', async (content, expected) => {
    expect(await faultsOf(domains, content)).toEqual(expected);
  });
});

it('a file that is not there is listed by its path', async () => {
  for (const read of [readJson, csvReader('domains')])
    await expect(allOf(read('/nowhere/at-all'))).rejects.toThrow('Cannot read /nowhere/at-all: ENOENT');
});

describe('a record', () => {
  const checked = async (kind: string, ...records: readonly unknown[]) =>
    await withFile(JSON.stringify({ [kind]: records }), async (path) => {
      const faults = new Faults();
      const good = await allOf(checkRecords(readJson(path), faults));
      return { good: good.map(({ record }) => record), faults: faults.listed.map(({ text }) => text) };
    });
  const domain = { domain: 'a.example', status: 'blacklisted' };

  it('has a default for what it leaves out', async () => {
    expect(await checked('dapps', { slug: 'a', name: 'A', url: 'https://a.example' })).toEqual({
      faults: [],
      good: [
        {
          slug: 'a',
          name: 'A',
          tagline: '',
          description: '',
          url: 'https://a.example',
          website_url: '',
          docs_url: '',
          logo_url: '',
          banner_url: '',
          category: null,
          tags: [],
          networks: [],
          twitter_url: '',
          discord_url: '',
          telegram_url: '',
          github_url: '',
          tvl_usd: null,
          daily_users: 0,
          total_transactions: 0,
          rating: '0.00',
          review_count: 0,
          is_featured: false,
          is_verified: false,
          is_active: true,
          launched_at: null,
        },
      ],
    });
    expect((await checked('tokens', { address: '0x1' })).good).toEqual([
      { address: `0x${'1'.padStart(64, '0')}` },
    ]);
  });

  it('is brought to one form', async () => {
    const { good, faults } = await checked('domains', {
      ...domain,
      domain: 'HTTPS://www.BÜCHER.example:8080/path',
    });
    expect([good, faults]).toMatchObject([[{ domain: 'xn--bcher-kva.example' }], []]);
    const dapp = { slug: 'a', name: 'A', url: 'https://a.example' };
    for (const [rating, shown] of [
      [4, '4.00'],
      [4.5, '4.50'],
      ['4.5', '4.50'],
      ['0.05', '0.05'],
    ] as const)
      expect((await checked('dapps', { ...dapp, rating })).good).toMatchObject([{ rating: shown }]);
    const launched = { ...dapp, launched_at: '2024-02-03T04:05:06.007+02:00' };
    expect((await checked('dapps', launched)).good).toMatchObject([
      { launched_at: Date.UTC(2024, 1, 3, 2, 5, 6, 7) },
    ]);
  });

  it.each([
    ['domains', { ...domain, statos: 1, _note: 'x' }, ['domains: there is no field "statos".']],
    ['domains', { ...domain, id: 7 }, ['domains: there is no field "id": the service sets it.']],
    [
      'domains',
      { status: 'listed' },
      ['domains.domain: This field is required.', expect.stringContaining('domains.status: ')],
    ],
    [
      'domains',
      { ...domain, domain: 'not a host' },
      ['domains.domain: Use the name of a host, such as example.org.'],
    ],
    [
      'domains',
      { ...domain, reason: 'a\0b' },
      ['domains.reason: must not contain NUL characters or unpaired surrogates'],
    ],
    [
      'domains',
      { ...domain, reason: '\ud800' },
      ['domains.reason: must not contain NUL characters or unpaired surrogates'],
    ],
    ['domains', { ...domain, active: 'yes' }, [expect.stringContaining('domains.active: ')]],
    [
      'tokens',
      { address: '0xzz' },
      ['tokens.address: Use 0x and up to 64 hex digits, below the prime of the field.'],
    ],
    [
      'class_hashes',
      { network: 'mainnet', account_type: 'a', class_hash: '0x1', released_at: 'soon' },
      ['class_hashes.released_at: Use a date and time such as 2026-01-31T12:00:00Z.'],
    ],
    [
      'class_hashes',
      { network: 'mainnet', account_type: 'a', class_hash: '0x1', released_at: '1960-01-01' },
      ['class_hashes.released_at: Use a time after 1970.'],
    ],
    [
      'dapps',
      { slug: 'search', name: 'A', url: 'https://a.example/a b', rating: '4.567' },
      [
        'dapps.slug: "search" is reserved for the search of dApps.',
        'dapps.url: Use a URL without whitespace.',
        'dapps.rating: Use a number from 0 to 9.99 with two places at most.',
      ],
    ],
    [
      'ads',
      {
        key: 'a',
        placement: 'a',
        title: 'A',
        target_url: 'https://a.example',
        starts_at: '2026-02-01',
        ends_at: '2026-02-01',
      },
      ['ads.ends_at: It must be later than starts_at.'],
    ],
    [
      'wallets',
      { wallet_address: '0x1', network: 'Main Net', wallet_type: 'a', transaction_count: -1 },
      [expect.stringContaining('wallets.network: '), expect.stringContaining('wallets.transaction_count: ')],
    ],
    [
      'dapps',
      { slug: 'a', name: 'A', url: 'javascript:alert(1)', rating: 12, tags: ['a', ''] },
      [
        expect.stringContaining('dapps.url: '),
        expect.stringContaining('dapps.tags.1: '),
        expect.stringContaining('dapps.rating: '),
      ],
    ],
  ])('of %s is refused: %j', async (kind, record, expected) => {
    expect(await checked(kind, record)).toEqual({ good: [], faults: expected });
  });

  it('takes nothing from what every object has', async () => {
    const text = '{"domains": [{"__proto__": {"domain": "a.example", "status": "pending"}, "reason": ""}]}';
    expect(await faultsOf(readJson, text)).toEqual([
      '1: domains.domain: This field is required.',
      expect.stringContaining('1: domains.status: '),
    ]);
  });

  it('of one entry is there once', async () => {
    const { faults } = await checked('domains', domain, { ...domain, domain: 'www.A.example.' });
    expect(faults).toEqual(['domains: domain a.example repeats line 1.']);
    const hash = { network: 'mainnet', account_type: 'a', class_hash: '0x1' };
    expect((await checked('class_hashes', hash, { ...hash, account_type: 'b' })).faults).toEqual([]);
    expect((await checked('class_hashes', hash, { ...hash, class_hash: '0x01' })).faults).toHaveLength(1);
  });

  it('that is wrong is listed a hundred times, and counted each time', async () => {
    await withFile(JSON.stringify({ domains: Array.from({ length: 1000 }, () => 1) }), async (path) => {
      const faults = new Faults();
      await allOf(checkRecords(readJson(path), faults));
      expect([faults.listed.length, faults.count]).toEqual([100, 1000]);
    });
  });
});

it('every field of a kind is known by its kind alone', () => {
  expect(fieldsOf('tokens')).toEqual(['address', 'verified', 'common', 'public', 'hidden', 'logo']);
});
