import { setImmediate as nextTurn } from 'node:timers/promises';

import type { Pool, PoolClient } from '../../infra/postgres/client.ts';
import type { Random } from './random.ts';

/** Runs transactions side by side on a real server, one statement at a time, in an order drawn by chance. */
export interface Interleaving {
  /** Each piece of work is given this pool; every statement through it waits for its turn. */
  readonly pool: Pool;
  /** Ends when all of it has; rejects with the first error, when all has ended. */
  run(work: readonly (() => Promise<unknown>)[]): Promise<void>;
}

export function interleaving(pool: Pool, random: Random): Interleaving {
  const waiting = new Set<() => void>();
  /** Connections with a statement under way. */
  const asking = new Set<number>();

  const inTurn = (client: PoolClient): PoolClient =>
    new Proxy(client, {
      get(target, name) {
        if (name !== 'query') {
          const value: unknown = Reflect.get(target, name);
          return typeof value === 'function' ? (value.bind(target) as unknown) : value;
        }
        return async (text: string, values?: unknown[]) => {
          const { promise: turn, resolve } = Promise.withResolvers<void>();
          waiting.add(resolve);
          await turn;
          const pid = Number(Reflect.get(target, 'processID'));
          asking.add(pid);
          try {
            return await target.query(text, values);
          } finally {
            asking.delete(pid);
          }
        };
      },
    });
  const gated = {
    connect: async () => inTurn(await pool.connect()),
    async query(text: string, values?: unknown[]) {
      const client = await pool.connect();
      try {
        return await inTurn(client).query(text, values);
      } finally {
        client.release();
      }
    },
  };

  /** Every statement has its answer, or waits for a lock. */
  async function still(): Promise<void> {
    for (;;) {
      for (let turn = 0; turn < 3; turn += 1) await nextTurn();
      if (asking.size === 0) return;
      const asked = [...asking];
      const { rows } = await pool.query<{ blocked: number }>(
        'SELECT count(*) AS blocked FROM unnest($1::integer[]) AS pid WHERE cardinality(pg_blocking_pids(pid)) > 0',
        [asked],
      );
      if (rows[0]?.blocked === asking.size && asked.every((pid) => asking.has(pid))) return;
    }
  }

  return {
    pool: gated as unknown as Pool,
    async run(work) {
      let running = work.length;
      const all = work.map(async (one) => {
        try {
          await one();
        } finally {
          running -= 1;
        }
      });
      const ended = Promise.allSettled(all);
      while (running > 0) {
        await still();
        if (waiting.size === 0) continue;
        const next = random.pick([...waiting]);
        waiting.delete(next);
        next();
      }
      for (const one of await ended) if (one.status === 'rejected') throw one.reason;
    },
  };
}
