import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { formatOf, statements, tokens } from '../../../../../infra/embedded/clickhouse/statement.ts';

const kinds = (sql: string): string[] => [...tokens(sql)].map(({ kind, text }) => `${kind} ${text}`.trim());

describe('tokens', () => {
  test.each([
    ['SELECT 1', ['word SELECT', 'number 1']],
    ["'it''s'", ['string']],
    ["'it\\'s; x'", ['string']],
    ["'a' 'b'", ['string', 'string']],
    ['`a``b` "c\\"d"', ['quoted a`b', 'quoted c"d']],
    ['a--b\n;', ['word a', 'symbol ;']],
    ['a - - b', ['word a', 'symbol -', 'symbol -', 'word b']],
    ['a // b; c\n, d', ['word a', 'symbol ,', 'word d']],
    ['a # b; c\n, d', ['word a', 'symbol ,', 'word d']],
    ['a /* ; /* ; */ ; */ b', ['word a', 'word b']],
    ['a /*/ b */ c', ['word a', 'word c']],
    ["$tag$ '; $x$ $tag$ b", ['string', 'word b']],
    ["x'4142' b", ['string', 'word b']],
    ['{p:Identifier}', ['symbol {', 'word p', 'symbol :', 'word Identifier', 'symbol }']],
    ['1.5e3', ['number 1', 'symbol .', 'number 5e3']],
  ])('%s', (sql, expected) => {
    expect(kinds(sql)).toEqual(expected);
  });

  test.each([
    "'open",
    '`open',
    '/* open',
    '/* /* */ open',
    '$a$ open',
    "x'no hex; '",
    '‘typographic’',
    '“typographic”',
    '#x',
    'ü',
    '\u0000',
  ])('what could be read in two ways is unknown: %j', (sql) => {
    expect([...tokens(`a ${sql}`)].map(({ kind }) => kind)).toContain('unknown');
  });

  test('cover the whole text', () => {
    const sql = "INSERT INTO `t` (a) -- c\n VALUES ('x')";
    const pieces = [...tokens(sql)].map(({ start, end }) => sql.slice(start, end));
    expect(pieces).toEqual(['INSERT', 'INTO', '`t`', '(', 'a', ')', 'VALUES', '(', "'x'", ')']);
  });
});

describe('statements', () => {
  /** Texts with a semicolon inside quotes or a comment. */
  const quote = (mark: string) => (content: string) =>
    mark + content.replaceAll('\\', '\\\\').replaceAll(mark, mark + mark) + mark;
  const content = fc.string({
    unit: fc.constantFrom(';', "'", '`', '"', '\\', '-', '/', '*', '#', '$', ' ', '\n', 'a'),
  });
  const harmless = fc.oneof(
    content.map(quote("'")),
    content.map(quote('`')),
    content.map(quote('"')),
    content.map((text) => `/* ${text.replaceAll(/[/*]/g, '')} */`),
    content.map((text) => `-- ${text.replaceAll('\n', ' ')}\n`),
    content.map((text) => `$q$${text.replaceAll('$', '')}$q$`),
    fc.constantFrom('a', '1', '(', '+', '{p:String}'),
  );

  test('are separated by semicolons outside quotes and comments', () => {
    fc.assert(
      fc.property(fc.array(fc.array(harmless, { maxLength: 6 }), { minLength: 1, maxLength: 4 }), (texts) => {
        const sql = texts.map((parts) => ['SELECT', ...parts].join(' ')).join(' ; ');
        expect(statements(sql)).toHaveLength(texts.length);
      }),
      { numRuns: 2000 },
    );
  });

  test('ignore a last semicolon and comments after it', () => {
    expect(statements('SELECT 1; -- done\n ; /* */')).toHaveLength(1);
    expect(statements(' -- nothing\n')).toHaveLength(0);
  });
});

test.each([
  ['SELECT 1 FORMAT JSON', 'JSON'],
  ['SELECT 1 FORMAT JSONEachRow SETTINGS max_threads = 1', 'JSONEachRow'],
  ["SELECT 'FORMAT CSV'", null],
  ['SELECT 1 -- FORMAT CSV', null],
  ['SELECT * FROM (SELECT 1 FORMAT CSV)', null],
  ['SELECT format FROM t', null],
])('the format of %s', (sql, format) => {
  expect(formatOf(statements(sql)[0] ?? [])).toBe(format);
});
