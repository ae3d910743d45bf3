import { expect, it } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import type { Publisher } from '../../../../../infra/kafka/client.ts';
import { createBalanceReader } from '../../../../../pipeline/dispatch/match/block-balances.ts';
import type { MatchDeps } from '../../../../../pipeline/dispatch/deps.ts';

it('rejects with a retryable error while a read model is not built', async () => {
  const read = createBalanceReader({
    readServed: async () => null,
    clock: systemClock,
    signal: new AbortController().signal,
  } as unknown as MatchDeps & { readonly publisher: Publisher });
  await expect(read({ height: 1, hash: '0x1' }, [])).rejects.toMatchObject({
    code: 'READ_MODEL_NOT_BUILT',
    retryable: true,
  });
});
