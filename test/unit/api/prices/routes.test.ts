import { expect, test } from 'vitest';

import type { RefreshBus } from '../../../../api/commands/refresh.ts';
import type { RequestInfo } from '../../../../api/http/route.ts';
import { priceRoutes } from '../../../../api/prices/routes.ts';
import type { Sql } from '../../../../infra/postgres/client.ts';
import { toFelt } from '../../../../schemas/felt.ts';

test('a caller who disconnects does not end the time for which nobody waits for a silent feed', async () => {
  let waits = 0;
  let now = 1_700_000_000_000;
  const refreshes: RefreshBus = {
    refresh: async () => {
      waits += 1;
      return null;
    },
    request: () => {},
    notify: () => {},
  };
  const pool = { query: async () => ({ rows: [] }) } as unknown as Sql;
  const route = priceRoutes({ refreshes, now: () => now })[0]!;
  const name = (text: string): string => text;
  const ask = async (
    signal: AbortSignal,
    query: Record<string, string> = {},
    user = 'user 1',
  ): Promise<number> => {
    const { answer } = await route.begin({
      params: {},
      request: {
        query: { token_address: toFelt(0xc01n), ...query },
        signal,
        caller: () => ({ user, name: user }),
      } as unknown as RequestInfo,
      pool,
      identify: { key: async () => ({ key: { id: 1, userId: 1 } }) } as never,
      served: async () => ({ table: name, schema: name, state: null, chainState: null }),
      asOf: null as never,
      body: async () => ({}),
    });
    await answer();
    return waits;
  };
  const { signal } = new AbortController();
  expect(await ask(signal)).toBe(1);
  expect(await ask(signal)).toBe(1);
  expect(await ask(AbortSignal.abort(), { force_refresh: 'true' })).toBe(2);
  expect(await ask(signal)).toBe(2);
  // Another caller waits: only the line of the first may be long.
  expect(await ask(signal, {}, 'user 2')).toBe(3);
  now += 60_000;
  expect(await ask(signal)).toBe(3);
  now += 1;
  expect(await ask(signal)).toBe(4);
  // It lasts no longer where the clock is set back.
  now -= 3_600_000;
  expect(await ask(signal)).toBe(5);
});
