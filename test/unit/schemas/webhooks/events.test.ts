import { expect, test } from 'vitest';

import { WEBHOOK_EVENTS, eventCatalogue, webhookBody } from '../../../../schemas/webhooks/events.ts';

test('catalogue has every event, with an example that matches its schema', () => {
  expect(Object.keys(eventCatalogue)).toEqual([...WEBHOOK_EVENTS]);
  for (const event of WEBHOOK_EVENTS) {
    const { example } = eventCatalogue[event];
    expect(example.event).toBe(event);
    expect(webhookBody.parse(example)).toEqual(example);
  }
});

test('transfer and price events have the fields of the contract', () => {
  // The contract, "Payloads".
  const transfer =
    'token_address from_address to_address value txhash block timestamp fee fee_unit event_type';
  const price =
    'token_address previous_price new_price crossed_above crossed_below threshold_above threshold_below';
  for (const event of ['transfer.created', 'transfer.reverted'] as const) {
    expect(Object.keys(eventCatalogue[event].example.data)).toEqual(
      expect.arrayContaining(transfer.split(' ')),
    );
  }
  expect(Object.keys(eventCatalogue['price.threshold'].example.data)).toEqual(price.split(' '));
  const { block, timestamp, value } = eventCatalogue['transfer.created'].example.data;
  expect([typeof block, typeof timestamp, typeof value]).toEqual(['number', 'number', 'string']);
});
