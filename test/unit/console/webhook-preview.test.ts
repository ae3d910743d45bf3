import { expect, test } from 'vitest';

import { NOTHING_ENTERED, previewOf } from '../../../console/src/webhook-preview.ts';
import { eventCatalogue } from '../../../schemas/webhooks/events.ts';

const padded = (digits: string): string => `0x${digits.padStart(64, '0')}`;
const entered = { token: '0x53C9', address: '0xabc', price_above: '2.5', price_below: '' };

test('leaves the example as it is while nothing is entered', () => {
  for (const { example } of Object.values(eventCatalogue))
    expect(previewOf(example, NOTHING_ENTERED)).toEqual(example);
});

test('ignores a token and an account that are no addresses', () => {
  const { example } = eventCatalogue['transfer.created'];
  expect(previewOf(example, { ...NOTHING_ENTERED, token: 'STRK', address: '0x' })).toEqual(example);
});

test('shows the token, the account and the prices that the subscription asks for', () => {
  expect(previewOf(eventCatalogue['transfer.created'].example, entered)).toMatchObject({
    event: 'transfer.created',
    data: { token_address: padded('53c9'), from_address: padded('abc'), value: '2500000000000000000' },
  });
  expect(previewOf(eventCatalogue['balance.changed'].example, entered)).toMatchObject({
    data: { token_address: padded('53c9'), account_address: padded('abc') },
  });
  expect(previewOf(eventCatalogue['price.threshold'].example, entered)).toMatchObject({
    data: { token_address: padded('53c9'), threshold_above: '2.5', threshold_below: '' },
  });
});
