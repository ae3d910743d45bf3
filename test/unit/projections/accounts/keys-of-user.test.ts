import { expect, it } from 'vitest';

import type { Sql } from '../../../../infra/postgres/client.ts';
import { keysOfUser } from '../../../../projections/accounts/queries.ts';

it('reads of the keys of a user only what a list shows', async () => {
  const row = { id: 1, name: 'k', created_at: 1 };
  const texts: string[] = [];
  const db = {
    query: async (text: string) => {
      texts.push(text);
      return { rows: [row] };
    },
  } as unknown as Sql;
  expect(await keysOfUser(db, 's', 7)).toEqual([row]);
  expect(texts.join()).not.toMatch(/allowed|\*/);
});
