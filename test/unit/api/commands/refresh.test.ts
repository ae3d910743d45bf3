import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { createRefreshBus } from '../../../../api/commands/refresh.ts';
import { AppError } from '../../../../schemas/errors.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const [account, token] = [toFelt(0xa11cen), toFelt(0xc01n)];
const request = { type: 'balance.requested' as const, account, token };
const subject = `${account}:${token}`;

function world(options: { waitMs?: number; fails?: boolean } = {}) {
  const appended: unknown[] = [];
  let clock = 5000;
  const bus = createRefreshBus({
    publisher: {
      publish: async (_topic, messages) => {
        if (options.fails === true) throw new AppError('STORE_UNAVAILABLE', 'away', { retryable: true });
        appended.push(...messages);
        return messages.map(() => ({ partition: 0, offset: 0 }));
      },
    },
    log: pino({ level: 'silent' }),
    now: () => clock,
    waitMs: options.waitMs ?? 60_000,
  });
  return { bus, appended, tick: (ms: number) => (clock += ms) };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('a refresh', () => {
  it('appends the request under its subject, and ends when notified of the result', async () => {
    const { bus, appended } = world();
    let answer: number | null = null;
    const asked: number[] = [];
    const found = bus.refresh([request], async (requestedAt) => {
      asked.push(requestedAt(request));
      return answer;
    });
    await vi.advanceTimersByTimeAsync(0);
    expect(asked).toEqual([5000]);
    answer = 7;
    bus.notify('somebody:else');
    await vi.advanceTimersByTimeAsync(0);
    expect(asked).toEqual([5000]);
    bus.notify(subject);
    // The clock stands still: no poll finds it.
    expect(await found).toBe(7);
    expect(appended).toEqual([{ key: subject, value: { ...request, v: 1, requested_at: 5000 } }]);
    expect(asked).toEqual([5000, 5000]);
  });

  it('shares one request of a caller within a second', async () => {
    const { bus, appended, tick } = world();
    const times: number[] = [];
    const look = async (requestedAt: (of: typeof request) => number): Promise<true> => {
      times.push(requestedAt(request));
      return true;
    };
    await Promise.all([bus.refresh([request], look), bus.refresh([{ ...request }, request], look)]);
    tick(999);
    await bus.refresh([request], look);
    expect(appended).toHaveLength(1);
    tick(1);
    await bus.refresh([request], async (requestedAt) => times.push(requestedAt(request)));
    expect(appended).toHaveLength(2);
    expect(times).toEqual([5000, 5000, 5000, 6000]);
  });

  it('shares no request from before the clock was set back', async () => {
    const { bus, appended, tick } = world();
    const refresh = async (): Promise<void> => void (await bus.refresh([request], async () => true));
    await refresh();
    for (const ms of [-3000, 999, 1]) {
      tick(ms);
      await refresh();
    }
    expect(appended).toMatchObject([5000, 2000, 3000].map((at) => ({ value: { requested_at: at } })));
  });

  it('appends the request of each caller, so that none waits in the line of another', async () => {
    const { bus, appended } = world();
    for (const caller of ['a', 'b', 'a']) await bus.refresh([{ ...request, caller }], async () => true);
    expect(appended).toMatchObject([{ value: { caller: 'a' } }, { value: { caller: 'b' } }]);
    expect(appended).toHaveLength(2);
  });

  it('times out', async () => {
    const { bus } = world({ waitMs: 30 });
    const found = bus.refresh([request], async () => null);
    await vi.advanceTimersByTimeAsync(30);
    expect(await found).toBe(null);
  });

  it('does not wait if the append failed, and lets the next caller append again', async () => {
    const { bus } = world({ fails: true });
    let looks = 0;
    const look = async (): Promise<null> => {
      looks += 1;
      return null;
    };
    expect(await bus.refresh([request], look)).toBe(null);
    expect(await bus.refresh([request], look)).toBe(null);
    expect(looks).toBe(2);
  });
});
