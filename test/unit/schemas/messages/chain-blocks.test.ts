import fc from 'fast-check';
import { expect, test } from 'vitest';
import { z } from 'zod';

import { FELT_PRIME, toFelt } from '../../../../schemas/felt.ts';
import { blockBody, blockTransaction } from '../../../../schemas/messages/chain-blocks.ts';
import { sampleBlock } from '../../../support/sample-block.ts';

/** What zod alone says. */
const byZod = z.array(blockTransaction);

const felt = fc.bigInt(0n, FELT_PRIME - 1n).map(toFelt);
/** Values that are nearly right. */
const doubtful = fc.oneof(
  fc.jsonValue(),
  felt,
  felt.map((text) => text.toUpperCase()),
  felt.map((text) => text.slice(0, -1)),
  felt.map((text) => `${text.slice(0, -1)}ı`),
  fc.constantFrom(
    undefined,
    null,
    'WEI',
    'wei',
    'SUCCEEDED',
    '0',
    '00',
    '-1',
    '1'.repeat(78),
    '1'.repeat(79),
  ),
  fc.constant(`0x${FELT_PRIME.toString(16).padStart(64, '0')}`),
  fc.constantFrom([], [null], {}, [[]], { keys: [], data: [] }),
);

/** All places in a JSON value, as paths. */
function placesIn(value: unknown, path: readonly (string | number)[] = []): (string | number)[][] {
  if (typeof value !== 'object' || value === null) return [[...path]];
  const entries = Array.isArray(value) ? [...value.entries()] : Object.entries(value);
  return [[...path], ...entries.flatMap(([key, inner]) => placesIn(inner, [...path, key]))];
}

function withValueAt(root: unknown, path: readonly (string | number)[], value: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return value;
  const copy: unknown = Array.isArray(root) ? [...root] : { ...(root as object) };
  Reflect.set(copy as object, key, withValueAt(Reflect.get(root as object, key), rest, value));
  return copy;
}

test('transactions are refused exactly when zod refuses them, for the same reasons', () => {
  const transactions = sampleBlock.transactions.slice(0, 3);
  const places = placesIn(transactions);
  let refused = 0;
  fc.assert(
    fc.property(fc.constantFrom(...places), doubtful, (path, value) => {
      const changed = withValueAt(transactions, path, value);
      const expected = byZod.safeParse(changed);
      const found = blockBody.safeParse({ ...sampleBlock, transactions: changed });
      expect(found.success).toBe(expected.success);
      if (expected.success) return;
      refused += 1;
      const issuesOf = (error: z.ZodError, skip: number) =>
        error.issues.map((issue) => `${issue.path.slice(skip).join('.')}: ${issue.message}`);
      if (!found.success) expect(issuesOf(found.error, 1)).toEqual(issuesOf(expected.error, 0));
    }),
    { numRuns: 2000 },
  );
  expect(refused).toBeGreaterThan(200);
});
