import { setImmediate as nextTurn } from 'node:timers/promises';

import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../infra/postgres/client.ts';
import type { Random } from './random.ts';

/** Runs transactions concurrently on a real server, one statement at a time, in a random order. */
export interface Interleaving {
  /** Passed to every piece of work; each of its statements waits for its turn. */
  readonly pool: Pool;
  /** Ends when all work has; rejects with its first error. */
  run(work: readonly (() => Promise<unknown>)[]): Promise<void>;
}

const pidRow = z.object({ pid: z.number() });
const blockedRow = z.object({ blocked: z.number() });

export function interleaving(pool: Pool, random: Random): Interleaving {
  const waiting = new Set<() => void>();
  /** Process ids of the connections with a running statement. */
  const running = new Set<number>();

  const inTurn = async (client: PoolClient): Promise<PoolClient> => {
    const [own] = await sqlRows(client, pidRow, 'SELECT pg_backend_pid() AS pid');
    const pid = own?.pid ?? 0;
    return {
      isLost: () => client.isLost(),
      release: (destroy) => client.release(destroy),
      async query(statement, values) {
        const { promise: turn, resolve } = Promise.withResolvers<void>();
        waiting.add(resolve);
        await turn;
        running.add(pid);
        try {
          return await client.query(statement, values);
        } finally {
          running.delete(pid);
        }
      },
    };
  };
  const gated: Pool = {
    connect: async () => await inTurn(await pool.connect()),
    async query(statement, values) {
      const client = await gated.connect();
      try {
        return await client.query(statement, values);
      } finally {
        client.release();
      }
    },
    end: async () => await pool.end(),
  };

  /** Every running statement has ended, or waits for a lock. */
  async function isSettled(): Promise<boolean> {
    for (let turn = 0; turn < 3; turn += 1) await nextTurn();
    if (running.size === 0) return true;
    const pids = [...running];
    const [row] = await sqlRows(
      pool,
      blockedRow,
      'SELECT count(*) AS blocked FROM unnest($1::integer[]) AS pid WHERE cardinality(pg_blocking_pids(pid)) > 0',
      [pids],
    );
    return row?.blocked === running.size && pids.every((pid) => running.has(pid));
  }

  return {
    pool: gated,
    async run(work) {
      let unfinished = work.length;
      const all = work.map(async (one) => {
        try {
          await one();
        } finally {
          unfinished -= 1;
        }
      });
      const ended = Promise.allSettled(all);
      while (unfinished > 0) {
        if (!(await isSettled()) || waiting.size === 0) continue;
        const next = random.pick([...waiting]);
        waiting.delete(next);
        next();
      }
      for (const one of await ended) if (one.status === 'rejected') throw one.reason;
    },
  };
}
