import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

import { Faults, checkRecords } from '../../../infra/bin/operator/catalogue/check.ts';
import { readJson } from '../../../infra/bin/operator/catalogue/read-file.ts';
import { allOf } from '../../support/files.ts';

const STARTER = 'infra/catalogue/starter.json';

it('the directory that an embedded start begins with is good, and names a source of every entry', async () => {
  const faults = new Faults();
  const records = await allOf(checkRecords(readJson(STARTER), faults));
  expect(faults.listed).toEqual([]);
  const { dapps, class_hashes: hashes } = JSON.parse(readFileSync(STARTER, 'utf8'));
  for (const { _source } of [...dapps, ...hashes]) expect(_source).toMatch(/^https:\/\//);
  const slugs = new Set(records.flatMap((one) => (one.kind === 'categories' ? [one.record.slug] : [])));
  for (const one of records) {
    if (one.kind !== 'dapps') continue;
    expect(slugs).toContain(one.record.category);
    // Nobody has measured or reviewed anything.
    expect(one.record).toMatchObject({
      tvl_usd: null,
      daily_users: 0,
      total_transactions: 0,
      rating: '0.00',
    });
  }
});
