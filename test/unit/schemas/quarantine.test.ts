import fc from 'fast-check';
import { expect, test } from 'vitest';

import { messageId, parseMessageId } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';

test('parseMessageId returns the message of its id, and null for the id of an event', () => {
  const place = fc.record({
    topic: fc.constantFrom(...Object.values(topics).map(({ name }) => name)),
    partition: fc.nat(),
    offset: fc.maxSafeNat(),
  });
  fc.assert(
    fc.property(place, (one) => {
      expect(parseMessageId(messageId(one))).toEqual(one);
    }),
  );
  expect(parseMessageId('chain.blocks:3:17')).toEqual({ topic: 'chain.blocks', partition: 3, offset: 17 });
  expect(parseMessageId('0x0b10c:7')).toBeNull();
});
