import { parse } from 'csv-parse/sync';
import { expect, test } from 'vitest';

import { toCsv } from '../../../console/src/csv.ts';

test('every text is read back, and none is a formula', () => {
  const texts = ['plain', 'a,b', 'say "no"', 'two\nlines', '', '-12.5', '0x1'];
  const csv = toCsv(
    ['text'],
    texts.map((text) => [text]),
  );
  const rows: unknown = parse(csv, { columns: true, skip_empty_lines: false });
  expect(rows).toEqual(texts.map((text) => ({ text })));
  for (const formula of ['=1+1', '+1+1', '-1+1', '@SUM(A1)', '\t=1', '\r=1'])
    expect(parse(toCsv(['text'], [[formula]]))[1]).toEqual([`'${formula}`]);
});
