import { Registry } from 'prom-client';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { CLAIM_MS } from '../../../../pipeline/observe/attempts.ts';
import type { Attempts, Claim } from '../../../../pipeline/observe/attempts.ts';
import { createObserverMetrics } from '../../../../pipeline/observe/metrics.ts';
import { startWorker } from '../../../../pipeline/observe/worker.ts';
import type { Worker } from '../../../../pipeline/observe/worker.ts';
import { AppError } from '../../../../schemas/errors.ts';

/** The rules of the table (`test/integration/pipeline/token-observer.test.ts` runs on the table itself) in a few lines. */
function ledger(subjects: readonly string[]) {
  const rows = new Map(
    subjects.map((subject) => [
      subject,
      { next_at: 0 as number | null, attempts: 0, message: null as unknown, error: '' },
    ]),
  );
  const end = (claim: Claim, change: Partial<{ next_at: number | null; message: unknown }>): boolean => {
    const row = rows.get(claim.subject);
    if (row === undefined || row.next_at !== claim.next_at) return false;
    Object.assign(row, change);
    return true;
  };
  const attempts: Pick<Attempts, 'claim' | 'prepare' | 'done' | 'failed' | 'release' | 'backlog'> = {
    async claim(limit, now) {
      const due = [...rows].filter(([, row]) => row.next_at !== null && row.next_at <= now).slice(0, limit);
      return due.map(([subject, row]) => {
        row.next_at = now + CLAIM_MS;
        return {
          subject,
          task: null,
          attempts: row.attempts,
          message: row.message,
          next_at: row.next_at,
        };
      });
    },
    prepare: async (claim, message) => end(claim, { message }),
    done: async (claim) => end(claim, { next_at: null }),
    async failed(claim, nextAt, error) {
      const row = rows.get(claim.subject);
      if (row !== undefined) Object.assign(row, { attempts: row.attempts + 1, error });
      return end(claim, { next_at: nextAt });
    },
    release: async (claim, now) => end(claim, { next_at: now }),
    backlog: async () => ({ waiting: 0, failing: 0 }),
  };
  return { rows, attempts: attempts as Attempts };
}

const away = (): never => {
  throw new AppError('NODE_UNREACHABLE', 'away', { retryable: true });
};

describe('startWorker', () => {
  let worker: Worker | null = null;
  beforeEach(() => void vi.useFakeTimers({ now: 0 }));
  afterEach(async () => {
    const stopped = worker?.stop();
    await vi.advanceTimersByTimeAsync(2000);
    await stopped;
    vi.useRealTimers();
  });

  function start(
    table: ReturnType<typeof ledger>,
    observe: (subject: string, signal: AbortSignal) => Promise<string>,
    publish: (subject: string, message: string) => Promise<void> = async () => {},
  ) {
    const fatal = vi.fn();
    worker = startWorker<string>(
      {
        observer: 'test',
        attempts: table.attempts,
        observe: (subject, _, signal) => observe(subject, signal),
        publish,
        readMessage: String,
        concurrency: 2,
        log: pino({ level: 'silent' }),
        metrics: createObserverMetrics(new Registry()),
        now: () => Date.now(),
        random: () => 0,
        pollMs: 100,
      },
      fatal,
    );
    return fatal;
  }

  it('tries again after 1, 2, 4, 8 … seconds, then publishes once', async () => {
    const table = ledger(['a']);
    const tried: number[] = [];
    const published: string[] = [];
    let isAway = true;
    start(
      table,
      async (subject) => {
        tried.push(Date.now());
        if (isAway) away();
        return `described ${subject}`;
      },
      async (_, message) => void published.push(message),
    );
    await vi.advanceTimersByTimeAsync(20_000);
    const pauses = tried.slice(1).map((at, index) => Math.round((at - (tried[index] ?? 0)) / 1000));
    expect(pauses).toEqual([1, 2, 4, 8]);
    expect(table.rows.get('a')).toMatchObject({ attempts: 5, error: 'away' });
    isAway = false;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(published).toEqual(['described a']);
    expect(table.rows.get('a')?.next_at).toBeNull();
  });

  it('lets one subject that fails keep none of the others', async () => {
    const table = ledger(['bad', 'a', 'b', 'c', 'd']);
    const published: string[] = [];
    start(
      table,
      async (subject) => (subject === 'bad' ? away() : subject),
      async (subject) => void published.push(subject),
    );
    await vi.advanceTimersByTimeAsync(500);
    expect(published).toEqual(['a', 'b', 'c', 'd']);
  });

  it('publishes what was written down, not a second observation, when publishing failed', async () => {
    const table = ledger(['a']);
    const published: string[] = [];
    let observations = 0;
    let logIsAway = true;
    start(
      table,
      async () => `observation ${++observations}`,
      async (_, message) => {
        if (logIsAway) throw new AppError('STORE_UNAVAILABLE', 'no log', { retryable: true });
        published.push(message);
      },
    );
    await vi.advanceTimersByTimeAsync(2000);
    logIsAway = false;
    await vi.advanceTimersByTimeAsync(5000);
    expect(published).toEqual(['observation 1']);
    expect(observations).toBe(1);
  });

  it('publishes nothing for a claim that was lost meanwhile', async () => {
    const table = ledger(['a']);
    const published: string[] = [];
    let first = true;
    start(
      table,
      async () => {
        const row = table.rows.get('a');
        // Asked for anew while it is being observed.
        if (first && row !== undefined) row.next_at = Date.now() + 50;
        const answer = first ? 'old' : 'new';
        first = false;
        return answer;
      },
      async (_, message) => void published.push(message),
    );
    await vi.advanceTimersByTimeAsync(1000);
    expect(published).toEqual(['new']);
  });

  it('gives back what it was at when it is stopped, without counting an attempt', async () => {
    const table = ledger(['a']);
    start(
      table,
      (_, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(new AppError('NODE_UNREACHABLE', 'given up')));
        }),
    );
    await vi.advanceTimersByTimeAsync(300);
    await worker?.stop();
    worker = null;
    expect(table.rows.get('a')).toMatchObject({ attempts: 0, next_at: Date.now() });
  });

  it('reports a bug of its own', async () => {
    const table = ledger(['a']);
    table.attempts.done = async () => {
      throw new TypeError('bug');
    };
    table.attempts.failed = table.attempts.done as never;
    const fatal = start(table, async () => 'x');
    await vi.advanceTimersByTimeAsync(300);
    expect(fatal).toHaveBeenCalled();
  });
});
