import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

import { afterAll, beforeAll, expect, it } from 'vitest';

import { sleep } from '../../../infra/lifecycle.ts';
import { withAdvisoryLocks } from '../../../infra/postgres/advisory-lock.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { until } from '../../support/projection-world.ts';

const SILENT_MS = 2000;

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

const take = async (work: (assertHeld: () => Promise<void>) => Promise<void>): Promise<void> =>
  await withAdvisoryLocks(pool, ['tried'], () => 'It is taken', work, { silentMs: SILENT_MS });

const canBeTaken = async (): Promise<boolean> =>
  await take(async () => {}).then(
    () => true,
    () => false,
  );

it('is kept by a holder that is at work for longer than a silent one keeps it', async () => {
  await take(async (assertHeld) => {
    await sleep(2 * SILENT_MS);
    await assertHeld();
    expect(await canBeTaken()).toBe(false);
  });
  expect(await canBeTaken()).toBe(true);
});

/** A process that holds the lock, and says so when it has it and when it lost it. */
const HOLDER = `
  const { withAdvisoryLocks } = await import('./infra/postgres/advisory-lock.ts');
  const { createPool } = await import('./infra/postgres/client.ts');
  const pool = createPool(process.env.DATABASE_URL, { applicationName: 'holder' });
  await withAdvisoryLocks(pool, ['tried'], () => 'taken', async (assertHeld) => {
    console.log('holds');
    for (;;) {
      await assertHeld();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }, { silentMs: ${SILENT_MS} }).catch(({ code }) => console.log(code));
  await pool.end();`;

it('is given up by a process that was stopped, which notices when it goes on', async () => {
  const holder = spawn(process.execPath, ['--input-type=module', '-e', HOLDER], {
    env: { ...process.env, ...own.env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const lines = createInterface(holder.stdout)[Symbol.asyncIterator]();
    expect(await lines.next()).toMatchObject({ value: 'holds' });
    expect(await canBeTaken()).toBe(false);
    holder.kill('SIGSTOP');
    await until(canBeTaken);
    holder.kill('SIGCONT');
    expect(await lines.next()).toMatchObject({ value: 'CONFLICT' });
    await once(holder, 'exit');
  } finally {
    holder.kill('SIGKILL');
  }
});
