import { pino } from 'pino';
import { afterAll, beforeAll, expect, it } from 'vitest';

import { pause } from '../../../infra/lifecycle.ts';
import { listen } from '../../../infra/postgres/listen.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { until } from '../../support/projection-world.ts';

let own: Isolated;
let pool: Pool;
beforeAll(async () => {
  own = await isolated();
  pool = createPool(own.env.DATABASE_URL, { applicationName: 'test' });
});
afterAll(async () => {
  await pool.end();
  await own.drop();
});

function listening(): { heard: string[]; warned: string[]; channel: ReturnType<typeof listen> } {
  const [heard, warned]: [string[], string[]] = [[], []];
  const log = pino({ level: 'warn' }, { write: (line: string) => void warned.push(line) });
  const channel = listen({
    url: own.env.DATABASE_URL,
    channel: 'tried',
    applicationName: 'test',
    log,
    onNotification: (payload) => void heard.push(payload),
  });
  return { heard, warned, channel };
}

it('hears what is notified, again after its connection was lost, of which it warns', async () => {
  const { heard, warned, channel } = listening();
  await until(async () => channel.isConnected());
  await pool.query("SELECT pg_notify('tried', 'one')");
  await until(async () => heard.length === 1);
  await pool.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'",
  );
  await until(async () => !channel.isConnected());
  await until(async () => channel.isConnected());
  await pool.query("SELECT pg_notify('tried', 'two')");
  await until(async () => heard.length === 2);
  expect(heard).toEqual(['one', 'two']);
  expect(warned.length).toBeGreaterThan(0);
  await channel.close();
});

it('warns of nothing where it is closed while it connects', async () => {
  for (let ms = 0; ms < 20; ms += 1) {
    const { warned, channel } = listening();
    await pause(ms);
    await channel.close();
    expect(warned, `after ${ms} ms`).toEqual([]);
  }
});
