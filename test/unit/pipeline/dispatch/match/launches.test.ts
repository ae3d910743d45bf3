import { expect, it } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import type { MatchDeps } from '../../../../../pipeline/dispatch/deps.ts';
import { launchMatcher } from '../../../../../pipeline/dispatch/match/launches.ts';
import { toFelt } from '../../../../../schemas/felt.ts';

it('rejects with a retryable error while a read model is not built', async () => {
  const subscribed = { lowest: 0, id: 1 };
  const projected = { projection: 'indexed-blocks', next_offset: 1, halted_offset: null, reason: null };
  const matcher = launchMatcher({
    pool: { query: async () => ({ rows: [{ ...subscribed, ...projected }] }) },
    kafka: { offsets: async () => [] },
    webhooks: async () => 'webhooks',
    readServed: async () => null,
    clock: systemClock,
    signal: new AbortController().signal,
  } as unknown as MatchDeps);
  const opened = await matcher.open();
  const described = {
    type: 'token.described' as const,
    v: 1 as const,
    token: toFelt(1n),
    standard: 'erc20' as const,
    class_hash: null,
    name: null,
    symbol: null,
    decimals: null,
    block: 1,
    observed_at: 0,
  };
  const logged = { topic: 'tokens', partition: 0, offset: 0, timestamp: 0, key: null, value: Buffer.of() };
  await expect(opened?.match(described, logged)).rejects.toMatchObject({
    code: 'READ_MODEL_NOT_BUILT',
    retryable: true,
  });
});
