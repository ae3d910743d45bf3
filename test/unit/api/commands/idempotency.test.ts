import { expect, it } from 'vitest';

import { checkUnlessRetry } from '../../../../api/commands/idempotency.ts';

/** A check that fails; the command with this id, if it has one, is decided at some look at its outcome. */
async function checked(
  id: string | undefined,
  decidedAt: number,
): Promise<{ checks: number; looks: number }> {
  const count = { checks: 0, looks: 0 };
  const commands = { isDecided: async () => (count.looks += 1) >= decidedAt };
  await checkUnlessRetry(commands, 'webhook.create', { id, requestHash: undefined }, () => {
    count.checks += 1;
    throw new Error('the host does not resolve');
  });
  return count;
}

it('checks no retry of a request that is decided', async () => {
  expect(await checked('id', 1)).toEqual({ checks: 0, looks: 1 });
});

it('ignores a failed check of a retry whose first request is decided meanwhile', async () => {
  expect(await checked('id', 2)).toEqual({ checks: 1, looks: 2 });
});

it('throws what the check of any other request throws', async () => {
  await expect(checked('id', 3)).rejects.toThrow('does not resolve');
  await expect(checked(undefined, 1)).rejects.toThrow('does not resolve');
});
