import { expect, test } from 'vitest';

import { fieldErrors } from '../../../console/src/field-errors.ts';

test('a field has its own errors, and those of the items of its list', () => {
  const errors = { name: ['Too long.'], names: ['Wrong.'], 'events[1]': ['Unknown.'], 'events.0': ['Null.'] };
  expect(fieldErrors(errors, 'name')).toEqual(['Too long.']);
  expect(fieldErrors(errors, 'events')).toEqual(['Unknown.', 'Null.']);
  expect(fieldErrors(errors, 'url')).toEqual([]);
});

test('a field of the objects of a list has the errors that name it, without its path', () => {
  const errors = { subscriptions: ['0.token: A threshold needs a token.', '0.address: Not a valid string.'] };
  expect(fieldErrors(errors, 'subscriptions.token')).toEqual(['A threshold needs a token.']);
  expect(fieldErrors(errors, 'subscriptions.address')).toEqual(['Not a valid string.']);
  expect(fieldErrors(errors, 'subscriptions.price_above')).toEqual([]);
});
