import fc from 'fast-check';
import { expect, test } from 'vitest';

import { insertHead } from '../../../../../infra/embedded/clickhouse/insert.ts';

/** Texts, with `|` where the data begins, and the expected parts of the head. */
const cases: readonly (readonly [text: string, target: string, format: string, settings: string])[] = [
  ['INSERT INTO t FORMAT JSONEachRow\n|{"a":1}', 'INSERT INTO t ', 'JSONEachRow', ''],
  ['insert into t(a, b) values |(1, 2)', 'insert into t(a, b) ', 'Values', ''],
  ['INSERT INTO `db`.`t` (a)\nFORMAT RowBinary \r\n|\n\n;', 'INSERT INTO `db`.`t` (a)\n', 'RowBinary', ''],
  [
    'INSERT INTO TABLE format SETTINGS async_insert = 0 FORMAT CSV |',
    'INSERT INTO TABLE format ',
    'CSV',
    'SETTINGS async_insert = 0 ',
  ],
  ['INSERT INTO {t:Identifier} (x) VALUES |(1)', 'INSERT INTO {t:Identifier} (x) ', 'Values', ''],
  [
    'INSERT INTO values (`format`, values) /* FORMAT TSV */ FORMAT CSV\n|1',
    'INSERT INTO values (`format`, values) /* FORMAT TSV */ ',
    'CSV',
    '',
  ],
  ["INSERT INTO FUNCTION f('VALUES') VALUES |(1)", "INSERT INTO FUNCTION f('VALUES') ", 'Values', ''],
  ['INSERT INTO `tüte` FORMAT CSV\n|1', 'INSERT INTO `tüte` ', 'CSV', ''],
];

test.each(cases)('parses the head of %j', (marked, target, format, settings) => {
  const bytes = Buffer.from(marked.replace('|', ''));
  const head = insertHead(bytes.toString('latin1'));
  expect(head).toEqual({
    target,
    format,
    settings,
    dataStart: Buffer.byteLength(marked.slice(0, marked.indexOf('|'))),
  });
});

test.each([
  'SELECT 1',
  'INSERT INTO t SELECT 1',
  'INSERT INTO t (a) WITH x AS (SELECT 1) SELECT * FROM x',
  "INSERT INTO t FROM INFILE 'x' FORMAT CSV",
  'INSERT INTO t',
  'INSERT INTO t FORMAT',
  '-- INSERT INTO t VALUES (1)\nSELECT 1',
  '',
])('%j carries no rows', (text) => {
  expect(insertHead(text)).toBeNull();
});

test('finds the beginning of any data', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (data) => {
      const head = 'INSERT INTO t (a) FORMAT RowBinary\n';
      const text = Buffer.concat([Buffer.from(head), data]).toString('latin1');
      expect(insertHead(text)?.dataStart).toBe(head.length);
    }),
  );
});
