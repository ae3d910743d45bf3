import { Registry } from 'prom-client';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';

import type { Kafka, Publisher } from '../../../../infra/kafka/client.ts';
import type { Pool } from '../../../../infra/postgres/client.ts';
import { createObserverMetrics } from '../../../../pipeline/observe/metrics.ts';
import { sleep } from '../../../../infra/lifecycle.ts';
import type { Pace } from '../../../../pipeline/observe/pace.ts';
import { startObserver } from '../../../../pipeline/observe/observer.ts';
import type { Observer, ObserverRun } from '../../../../pipeline/observe/observer.ts';
import { CLAIM_MS } from '../../../../pipeline/observe/claims.ts';
import type { TaskClaim } from '../../../../pipeline/observe/claims.ts';
import { createTaskHandler, startWorker } from '../../../../pipeline/observe/worker.ts';
import type { LoggedBlock } from '../../../../pipeline/observe/block-feed.ts';
import type { TaskStore } from '../../../../pipeline/observe/worker.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { topics } from '../../../../schemas/topics.ts';

/** A task store in memory; test/integration/pipeline/token-observer.test.ts runs on the real one. */
function createTasks(subjects: readonly string[]) {
  const rows = new Map(
    subjects.map((subject) => [
      subject,
      { next_at: 0 as number | null, attempts: 0, message: null as unknown, error: '' },
    ]),
  );
  const end = (claim: TaskClaim, change: Partial<{ next_at: number | null; message: unknown }>): boolean => {
    const row = rows.get(claim.subject);
    if (row === undefined || row.next_at !== claim.next_at) return false;
    Object.assign(row, change);
    return true;
  };
  const store: TaskStore<TaskClaim, string> = {
    async claim(limit, now, which) {
      const due = [...rows]
        .filter(([subject]) => which === 'all' || subject.startsWith('requested'))
        .filter(([, row]) => row.next_at !== null && row.next_at <= now)
        .slice(0, limit);
      return due.map(([subject, row]) => {
        row.next_at = now + CLAIM_MS;
        return {
          subject,
          task: null,
          attempts: row.attempts,
          message: row.message,
          next_at: row.next_at,
          is_requested: subject.startsWith('requested'),
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
    bringForward: async () => {},
    backlog: async () => ({ waiting: 0, failing: 0 }),
  };
  return { rows, store };
}

const unavailable = (): never => {
  throw new AppError('NODE_UNREACHABLE', 'unavailable', { retryable: true });
};

describe('startWorker', () => {
  let observer: ObserverRun | null = null;
  beforeEach(() => void vi.useFakeTimers({ now: 0 }));
  afterEach(async () => {
    const stopped = observer?.stop();
    await vi.advanceTimersByTimeAsync(2000);
    await stopped;
    vi.useRealTimers();
  });

  /** Returns the error that ended the run, if any. */
  async function start(
    tasks: ReturnType<typeof createTasks>,
    observe: (subject: string, signal: AbortSignal) => Promise<string>,
    {
      publish = async () => {},
      isBackfilling = async () => false,
      pace = { restMs: () => 0, begin: () => {} },
      pollMs = 100,
      concurrency = 2,
      joined = Promise.resolve(),
      signal = new AbortController().signal,
    }: {
      readonly publish?: (subject: string, message: string) => Promise<void>;
      readonly isBackfilling?: () => Promise<boolean>;
      readonly pace?: Pace;
      readonly pollMs?: number;
      readonly concurrency?: number;
      /** Resolves when the start of the observer ends, as once its consumer has joined its group. */
      readonly joined?: Promise<void>;
      readonly signal?: AbortSignal;
    } = {},
  ): Promise<{ readonly error: unknown }> {
    const publisher: Publisher = {
      async publish(_, messages) {
        for (const { key = '', value } of messages) await publish(key, String(value));
        return [];
      },
      close: async () => {},
    };
    const run = { error: null as unknown };
    observer = await startObserver(
      'test',
      // The worker reads no topic and no table.
      {
        kafka: { publisher: () => publisher } as Kafka,
        pool: {} as Pool,
        log: pino({ level: 'silent' }),
        pollMs,
        signal,
      },
      async (context) => {
        startWorker(context, {
          store: tasks.store,
          topic: { ...topics.tokens, schema: z.string() },
          observe: (subject, _, signal) => observe(subject, signal),
          concurrency,
          metrics: createObserverMetrics(new Registry()),
          isBackfilling,
          random: () => 0,
          pace,
        });
        await joined;
      },
    );
    observer.done.catch((error: unknown) => (run.error = error));
    return run;
  }

  it('retries after 1, 2, 4, 8 … seconds, then publishes once', async () => {
    const tasks = createTasks(['a']);
    const attemptedAt: number[] = [];
    const published: string[] = [];
    let isUnavailable = true;
    await start(
      tasks,
      async (subject) => {
        attemptedAt.push(Date.now());
        if (isUnavailable) unavailable();
        return `described ${subject}`;
      },
      { publish: async (_, message) => void published.push(message) },
    );
    await vi.advanceTimersByTimeAsync(20_000);
    const delays = attemptedAt
      .slice(1)
      .map((at, index) => Math.round((at - (attemptedAt[index] ?? 0)) / 1000));
    expect(delays).toEqual([1, 2, 4, 8]);
    expect(tasks.rows.get('a')).toMatchObject({ attempts: 5, error: 'unavailable' });
    isUnavailable = false;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(published).toEqual(['described a']);
    expect(tasks.rows.get('a')?.next_at).toBeNull();
  });

  it('processes the other subjects while one fails', async () => {
    const tasks = createTasks(['bad', 'a', 'b', 'c', 'd']);
    const published: string[] = [];
    await start(tasks, async (subject) => (subject === 'bad' ? unavailable() : subject), {
      publish: async (subject) => void published.push(subject),
    });
    await vi.advanceTimersByTimeAsync(500);
    expect(published).toEqual(['a', 'b', 'c', 'd']);
  });

  it('publishes the stored message instead of a second observation when publishing failed', async () => {
    const tasks = createTasks(['a']);
    const published: string[] = [];
    let observations = 0;
    let isKafkaUnavailable = true;
    await start(tasks, async () => `observation ${++observations}`, {
      publish: async (_, message) => {
        if (isKafkaUnavailable)
          throw new AppError('STORE_UNAVAILABLE', 'Kafka unavailable', { retryable: true });
        published.push(message);
      },
    });
    await vi.advanceTimersByTimeAsync(2000);
    isKafkaUnavailable = false;
    await vi.advanceTimersByTimeAsync(5000);
    expect(published).toEqual(['observation 1']);
    expect(observations).toBe(1);
  });

  it('publishes nothing for a claim that was lost during the observation', async () => {
    const tasks = createTasks(['a']);
    const published: string[] = [];
    let first = true;
    await start(
      tasks,
      async () => {
        const row = tasks.rows.get('a');
        // The task is reset, as by a repair, while it is being observed.
        if (first && row !== undefined) row.next_at = Date.now() + 50;
        const answer = first ? 'old' : 'new';
        first = false;
        return answer;
      },
      { publish: async (_, message) => void published.push(message) },
    );
    await vi.advanceTimersByTimeAsync(1000);
    expect(published).toEqual(['new']);
  });

  it('releases its task without counting an attempt when it is stopped while its consumer joins', async () => {
    const tasks = createTasks(['a']);
    const stopping = new AbortController();
    const joined = Promise.withResolvers<void>();
    const running = Promise.withResolvers<string>();
    const started = start(tasks, () => running.promise, {
      joined: joined.promise,
      signal: stopping.signal,
    });
    await vi.advanceTimersByTimeAsync(50);
    stopping.abort();
    running.reject(new AppError('NODE_UNREACHABLE', 'closed', { retryable: true }));
    await vi.advanceTimersByTimeAsync(500);
    expect(tasks.rows.get('a')).toMatchObject({ attempts: 0, next_at: 50 });
    joined.resolve();
    expect((await started).error).toBeNull();
  });

  it('releases its task without counting an attempt when it is stopped', async () => {
    const tasks = createTasks(['a']);
    await start(
      tasks,
      (_, signal) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(new AppError('NODE_UNREACHABLE', 'cancelled')));
        }),
    );
    await vi.advanceTimersByTimeAsync(300);
    await observer?.stop();
    observer = null;
    expect(tasks.rows.get('a')).toMatchObject({ attempts: 0, next_at: Date.now() });
  });

  it('processes a few tasks together with pauses during a backfill, but requested ones at once', async () => {
    const others = Array.from({ length: 20 }, (_, i) => `other ${i}`);
    const tasks = createTasks([...others, 'requested 1', 'requested 2']);
    const begun: [string, number][] = [];
    const published: number[] = [];
    let isBackfilling = true;
    await start(
      tasks,
      async (subject) => {
        begun.push([subject, Date.now()]);
        await sleep(1000);
        return subject;
      },
      {
        isBackfilling: async () => isBackfilling,
        concurrency: 50,
        publish: async (subject) => void (subject.startsWith('other') && published.push(Date.now())),
      },
    );
    await vi.advanceTimersByTimeAsync(150);
    tasks.rows.set('requested 3', { next_at: 0, attempts: 0, message: null, error: '' });
    await vi.advanceTimersByTimeAsync(5850);
    const beginnings = (of: string): number[] =>
      begun.flatMap(([subject, at]) => (subject.startsWith(of) ? [at] : []));
    expect(beginnings('requested')).toEqual([0, 0, 200]);
    // A second, and what they waited to be published together; then a pause of four times that.
    expect(published).toEqual(Array(8).fill(1100));
    expect(beginnings('other')).toEqual([...Array(8).fill(0), ...Array(8).fill(5500)]);

    isBackfilling = false;
    await vi.advanceTimersByTimeAsync(200);
    expect(beginnings('other')).toHaveLength(20);
  });

  it('pauses for two seconds after fast tasks of a backfill', async () => {
    const tasks = createTasks(Array.from({ length: 10 }, (_, i) => `${i}`));
    const begun: number[] = [];
    const observe = async (subject: string): Promise<string> => (begun.push(Date.now()), subject);
    await start(tasks, observe, { isBackfilling: async () => true, concurrency: 50 });
    await vi.advanceTimersByTimeAsync(3000);
    expect(begun).toEqual([...Array(8).fill(0), 2100, 2100]);
  });

  it('goes on during a backfill while a task hangs', async () => {
    const tasks = createTasks(['hanging', 'a', 'b', 'c']);
    const published: [string, number][] = [];
    await start(
      tasks,
      async (subject, signal) => {
        if (subject === 'hanging') await sleep(60_000, signal);
        return subject;
      },
      {
        isBackfilling: async () => true,
        publish: async (subject) => void published.push([subject, Date.now()]),
      },
    );
    await vi.advanceTimersByTimeAsync(25_000);
    // Two tasks at a time, of which one hangs: 5 s of waiting and as long a pause, then 2 s of pause after fast ones.
    expect(published).toEqual([
      ['a', 100],
      ['b', 10_100],
      ['c', 12_200],
    ]);
  });

  it('leaves places for requested tasks during a backfill while others hang', async () => {
    const tasks = createTasks(Array.from({ length: 20 }, (_, i) => `hanging ${i}`));
    const begun: string[] = [];
    const observe = async (subject: string, signal: AbortSignal): Promise<string> => {
      begun.push(subject);
      await sleep(40_000, signal);
      return subject;
    };
    await start(tasks, observe, { isBackfilling: async () => true, concurrency: 9 });
    await vi.advanceTimersByTimeAsync(30_000);
    expect(begun).toHaveLength(8);
    tasks.rows.set('requested 1', { next_at: 0, attempts: 0, message: null, error: '' });
    await vi.advanceTimersByTimeAsync(200);
    expect(begun).toHaveLength(9);
  });

  it('publishes at once what a client has requested, and the rest together', async () => {
    const tasks = createTasks(['requested 1', 'a', 'b']);
    const published: [string, number][] = [];
    await start(
      tasks,
      async (subject) => {
        if (subject === 'b') await sleep(50);
        return subject;
      },
      { publish: async (subject) => void published.push([subject, Date.now()]) },
    );
    await vi.advanceTimersByTimeAsync(1000);
    expect(published).toEqual([
      ['requested 1', 0],
      ['a', 100],
      ['b', 100],
    ]);
  });

  describe('at its pace', () => {
    /** Asks for a rest after each beginning, until `isRested`. */
    function createRests() {
      const rests = { isRested: true };
      const pace: Pace = {
        restMs: () => (rests.isRested ? 0 : 500),
        begin: () => {
          rests.isRested = false;
        },
      };
      return { rests, pace };
    }
    const due = () => ({ next_at: 0, attempts: 0, message: null, error: '' });

    it('rests before it begins more', async () => {
      const tasks = createTasks(['a', 'b', 'c']);
      const begun: string[] = [];
      const { rests, pace } = createRests();
      await start(tasks, async (subject) => (begun.push(subject), subject), { pace });
      await vi.advanceTimersByTimeAsync(400);
      expect(begun).toEqual(['a', 'b']);
      rests.isRested = true;
      await vi.advanceTimersByTimeAsync(300);
      expect(begun).toEqual(['a', 'b', 'c']);
    });

    it('begins what a client has requested in the round that begins a rest', async () => {
      const tasks = createTasks(['a']);
      const begun: [string, number][] = [];
      const observe = async (subject: string): Promise<string> => {
        begun.push([subject, Date.now()]);
        if (subject === 'a') tasks.rows.set('requested 1', due());
        return subject;
      };
      await start(tasks, observe, { pace: createRests().pace, pollMs: 60_000 });
      await vi.advanceTimersByTimeAsync(400);
      // When `a` has waited for others to be published with.
      expect(begun).toEqual([
        ['a', 0],
        ['requested 1', 100],
      ]);
    });

    it('begins what a client has requested during a rest once there is a place', async () => {
      const tasks = createTasks(['a', 'b', 'requested 1']);
      const begun: [string, number][] = [];
      const observe = async (subject: string): Promise<string> => {
        begun.push([subject, Date.now()]);
        await sleep(subject === 'a' ? 1000 : 100);
        return subject;
      };
      await start(tasks, observe, { pace: createRests().pace, pollMs: 60_000 });
      await vi.advanceTimersByTimeAsync(250);
      // Both places are taken now, and the rest lasts until 700.
      tasks.rows.set('requested 2', due());
      await vi.advanceTimersByTimeAsync(250);
      expect(begun).toEqual([
        ['a', 0],
        ['b', 0],
        ['requested 1', 200],
        ['requested 2', 300],
      ]);
    });
  });

  it('reports an error of its store', async () => {
    const tasks = createTasks(['a']);
    const throwBug = async (): Promise<boolean> => {
      throw new TypeError('bug');
    };
    Object.assign(tasks.store, { done: throwBug, failed: throwBug });
    const run = await start(tasks, async () => 'x');
    await vi.advanceTimersByTimeAsync(300);
    expect(run.error).toBeInstanceOf(TypeError);
  });
});

describe('createTaskHandler', () => {
  it('stores a task once, and again when its block comes again, as after a fail-over of PostgreSQL', async () => {
    const stored: string[][] = [];
    const handle = createTaskHandler<string>(
      { log: pino({ level: 'silent' }), now: () => 0, retryWhileUnavailable: (work) => work() } as Observer,
      { wake: () => {}, stop: async () => {} },
      {
        tasksOf: ({ block }) => [`of ${block.height % 2}`],
        keyOf: (task) => task,
        mayReset: () => false,
        add: async (tasks) => stored.push([...tasks]),
      },
    );
    const block = (height: number) =>
      ({ partition: 0, offset: height, block: { height } }) as unknown as LoggedBlock;
    await handle([block(1), block(2), block(3)]);
    await handle([block(4)]);
    await handle([{ ...block(3), partition: 1 }]);
    await handle([block(3), block(4)]);
    await handle([block(5)]);
    expect(stored).toEqual([['of 1', 'of 0'], [], [], ['of 1', 'of 0'], []]);
  });
});
