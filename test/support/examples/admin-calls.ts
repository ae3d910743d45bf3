import type { Pool } from '../../../infra/postgres/client.ts';
import type { SimulatedService } from '../simulated-service.ts';
import type { Recorder } from './recorder.ts';

/** Calls of admins. */

/** Quarantined events of the chain, newest first. */
async function quarantined({ ask }: Recorder): Promise<{ path: { id: string } }[]> {
  const { json } = await ask('listQuarantine', { query: { kind: 'event' } });
  return json.results.map(({ id }: { id: string }) => ({ path: { id } }));
}

/** A rebuild that does not end. */
async function withRebuild<T>(pool: Pool, projection: string, run: () => Promise<T>): Promise<T> {
  const { rows } = await pool.query<{ id: string }>(
    `INSERT INTO tds.rebuild_runs (id, projections, requested_by, updated_at)
     VALUES (gen_random_uuid(), ARRAY[$1], 'operator', now() + interval '1 minute') RETURNING id`,
    [projection],
  );
  try {
    return await run();
  } finally {
    await pool.query('DELETE FROM tds.rebuild_runs WHERE id = $1', [rows[0]?.id]);
  }
}

/** Operations that no process can begin before they are answered. */
export async function callPending(
  { inspected: { pool } }: SimulatedService,
  recorder: Recorder,
): Promise<void> {
  const { ask } = recorder;
  // The oldest ones: `callAdmin` takes some of the newest, and more may follow before these operations have run.
  const [one, other] = (await quarantined(recorder)).slice(-2);
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await client.query('LOCK TABLE tds.operations IN SHARE ROW EXCLUSIVE MODE');
    await withRebuild(pool, 'transfers', async () => {
      await Promise.all([
        ask('skipQuarantined', { ...one, status: 202 }),
        ask('retryQuarantined', { ...other, status: 202 }),
        ask('abortRebuild', { path: { name: 'transfers' }, status: 202 }),
      ]);
    });
  } finally {
    await client.query('ROLLBACK');
    client.release();
  }
}

export async function callAdmin(
  { inspected: { pool } }: SimulatedService,
  recorder: Recorder,
  rebuilt: string,
): Promise<void> {
  const { ask } = recorder;
  await ask('getPipeline');
  await ask('listProjections');
  const [one, other] = (await quarantined(recorder)).slice(2);
  await ask('getQuarantined', one);
  await ask('getHistory');
  await ask('getChunkMap');
  await ask('getAdminVerification');
  await ask('skipQuarantined', one);
  await ask('retryQuarantined', other);
  await ask('startRebuild', { path: { name: rebuilt }, body: { swap: false }, status: 202 });
  const { json: aborted } = await withRebuild(pool, 'transfers', () =>
    ask('abortRebuild', { path: { name: 'transfers' } }),
  );
  await ask('startVerification', { status: 202 });
  await ask('listOperations');
  await ask('getOperation', { path: { id: aborted.id } });
}
