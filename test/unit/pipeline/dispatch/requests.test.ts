import { expect, test } from 'vitest';

import { transactionsOf } from '../../../../pipeline/dispatch/requests.ts';

test('requests of consecutive tests share a transaction, others have one each', () => {
  const kinds = ['test', 'test', 'test', 'retry', 'retry', 'test', 'delete', 'test', 'test'] as const;
  const requests = kinds.map((kind, at) => ({ kind, at }));
  const transactions = transactionsOf(requests);
  expect(transactions.map((together) => together.map(({ kind }) => kind))).toEqual([
    ['test', 'test', 'test'],
    ['retry'],
    ['retry'],
    ['test'],
    ['delete'],
    ['test', 'test'],
  ]);
  expect(transactions.flat()).toEqual(requests);
});
