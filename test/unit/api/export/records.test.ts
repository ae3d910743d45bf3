import { expect, test } from 'vitest';

import { createExportRecords } from '../../../../api/export/records.ts';
import type { ExportRecord } from '../../../../schemas/api/exports.ts';
import { AppError } from '../../../../schemas/errors.ts';

const HOUR_MS = 3_600_000;
const unavailable = async () => {
  throw new AppError('STORE_UNAVAILABLE', 'Redis did not answer', { retryable: true });
};
const record: ExportRecord = {
  id: '7f5b1f0c-6f0e-4f3b-8f0e-0d6b3a1c2e4d',
  format: 'csv',
  block: 5,
  block_hash: `0x${'0'.repeat(63)}5`,
  rows: null,
  sha256: null,
  bytes: null,
  complete: false,
};
const whole: ExportRecord = { ...record, rows: 3, sha256: 'ab'.repeat(32), bytes: 9, complete: true };

test('keeps a record for an hour after it was saved last while Redis is unavailable', async () => {
  let time = 1000;
  const records = createExportRecords({ run: unavailable }, () => time);
  await records.save(1, record);
  time += HOUR_MS / 2;
  await records.save(1, whole);
  time += HOUR_MS - 1;
  expect(await records.find(1, record.id)).toEqual(whole);
  expect(await records.find(2, record.id)).toBe(null);
  time += 1;
  expect(await records.find(1, record.id)).toBe(null);
});

test('knows that an export is complete where Redis has missed it', async () => {
  const records = createExportRecords({ run: async () => JSON.stringify(record) }, () => 0);
  await records.save(1, whole);
  expect(await records.find(1, record.id)).toEqual(whole);
});

test('passes on an error of Redis that a retry cannot help', async () => {
  const wrong = new TypeError('a bug');
  const failing = async () => {
    throw wrong;
  };
  const records = createExportRecords({ run: failing }, () => 0);
  await expect(records.save(1, record)).rejects.toBe(wrong);
  await expect(records.find(2, record.id)).rejects.toBe(wrong);
});
