import { Socket } from 'node:net';

import { pino } from 'pino';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';

import { sleep } from '../../../infra/lifecycle.ts';
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

function listening(): { received: string[]; warned: string[]; channel: ReturnType<typeof listen> } {
  const [received, warned]: [string[], string[]] = [[], []];
  const log = pino({ level: 'warn' }, { write: (line: string) => void warned.push(line) });
  const channel = listen({
    url: own.env.DATABASE_URL,
    channel: 'tried',
    applicationName: 'test',
    log,
    onNotification: (payload) => void received.push(payload),
  });
  return { received, warned, channel };
}

it('receives notifications, also after a lost connection, which it logs as a warning', async () => {
  const { received, warned, channel } = listening();
  await until(async () => channel.isConnected());
  await pool.query("SELECT pg_notify('tried', 'one')");
  await until(async () => received.length === 1);
  await pool.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'",
  );
  await until(async () => !channel.isConnected());
  await until(async () => channel.isConnected());
  await pool.query("SELECT pg_notify('tried', 'two')");
  await until(async () => received.length === 2);
  expect(received).toEqual(['one', 'two']);
  expect(warned.length).toBeGreaterThan(0);
  await channel.close();
});

it('probes its connection, on which it sends nothing, so that it notices a server that has vanished', async () => {
  const keepAlive = vi.spyOn(Socket.prototype, 'setKeepAlive');
  const { channel } = listening();
  await until(async () => channel.isConnected());
  expect(keepAlive.mock.calls).toEqual([[true, 10_000]]);
  keepAlive.mockRestore();
  await channel.close();
});

it('logs no warning when it is closed while it connects', async () => {
  for (let ms = 0; ms < 20; ms += 1) {
    const { warned, channel } = listening();
    await sleep(ms);
    await channel.close();
    expect(warned, `after ${ms} ms`).toEqual([]);
  }
});
