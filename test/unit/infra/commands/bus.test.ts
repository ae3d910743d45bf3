import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { createCommandBus, idempotentCommandId, requestHash } from '../../../../infra/commands/bus.ts';
import type { CommandRequest } from '../../../../infra/commands/bus.ts';
import type { CommandOutcome } from '../../../../schemas/command-outcome.ts';

/** Waiting for outcomes, with a fake log and outcome table. */

const close: CommandRequest = {
  type: 'session.close',
  actor: 'user:1',
  id: 'c1',
  body: { token_hash: 'a'.repeat(64) },
};
const accepted: CommandOutcome = { accepted: true, request_hash: null, result: { id: 1 } };

function bus(options: { timeoutMs?: number; publish?: () => Promise<[]>; fail?: boolean } = {}) {
  const outcomes = new Map<string, CommandOutcome>();
  const published: unknown[] = [];
  let looks = 0;
  const commands = createCommandBus({
    publisher: {
      publish: async (_topic, messages) => {
        published.push(...messages.map(({ value }) => value));
        return await (options.publish?.() ?? []);
      },
    },
    findOutcomes: async (submitted) => {
      looks += 1;
      if (options.fail === true) throw new Error('no answer');
      return new Map([...outcomes].filter(([id]) => submitted.some((command) => command.id === id)));
    },
    timeoutMs: options.timeoutMs ?? 2000,
    now: () => 1_700_000_000_000,
  });
  return { commands, outcomes, published, looks: () => looks };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('submit', () => {
  it('returns when notified that the command is decided', async () => {
    const { commands, outcomes, published } = bus();
    const submitted = commands.submit(close);
    await vi.advanceTimersByTimeAsync(20);
    outcomes.set('c1', accepted);
    commands.notify('another');
    commands.notify('c1');
    // The clock stands still: no poll finds it.
    expect(await submitted).toEqual(accepted);
    expect(published).toEqual([{ v: 1, issued_at: 1_700_000_000_000, request_hash: null, ...close }]);
  });

  it.each(['a\0', 'a\ud800', '\udc00b'])('never appends %j, which PostgreSQL cannot hold', async (actor) => {
    const { commands, published } = bus();
    await expect(commands.submit({ ...close, actor })).rejects.toThrow('surrogate');
    expect(published).toEqual([]);
  });

  it('finds an outcome whose notification was lost', async () => {
    const { commands, outcomes, looks } = bus();
    const submitted = commands.submit(close);
    await vi.advanceTimersByTimeAsync(20);
    outcomes.set('c1', accepted);
    await vi.advanceTimersByTimeAsync(250);
    expect(await submitted).toEqual(accepted);
    expect(looks()).toBeLessThan(5);
  });

  it('finds an outcome without a notification at its timeout', async () => {
    const { commands, outcomes } = bus({ timeoutMs: 100 });
    const submitted = commands.submit(close);
    await vi.advanceTimersByTimeAsync(20);
    outcomes.set('c1', accepted);
    await vi.advanceTimersByTimeAsync(80);
    expect(await submitted).toEqual(accepted);
  });

  it('reads the outcomes of all waiting commands together', async () => {
    const { commands, outcomes, looks } = bus({ timeoutMs: 10_000 });
    const { id: _id, ...rest } = close;
    const ids = Array.from({ length: 100 }, (_, index) => `c${index}`);
    const submitted = ids.map((id) => commands.submit({ ...rest, id }));
    await vi.advanceTimersByTimeAsync(20);
    const before = looks();
    for (const id of ids) outcomes.set(id, accepted);
    for (const id of ids) commands.notify(id);
    expect(await Promise.all(submitted)).toEqual(ids.map(() => accepted));
    expect(looks() - before).toBeLessThan(4);
  });

  it('rejects when the outcomes cannot be read', async () => {
    const { commands } = bus({ fail: true });
    const { id: _id, ...rest } = close;
    const rejected = expect(commands.submit(rest)).rejects.toThrow('no answer');
    await vi.advanceTimersByTimeAsync(250);
    await rejected;
  });

  it('does not append a command that has been decided', async () => {
    const { commands, outcomes, published } = bus();
    outcomes.set('c1', accepted);
    expect(await commands.submit(close)).toEqual(accepted);
    expect(published).toEqual([]);
  });

  it('times out while the projector or Kafka is unavailable', async () => {
    const silent = new Promise<[]>(() => {});
    for (const publish of [async (): Promise<[]> => [], () => silent]) {
      const { commands } = bus({ timeoutMs: 100, publish });
      const rejected = expect(commands.submit(close)).rejects.toMatchObject({
        code: 'COMMAND_TIMEOUT',
        retryable: true,
      });
      await vi.advanceTimersByTimeAsync(100);
      await rejected;
    }
  });

  it('rejects when the append fails', async () => {
    const { commands } = bus({ publish: async () => await Promise.reject(new Error('no')) });
    await expect(commands.submit(close)).rejects.toThrow('no');
  });

  it('generates an id by default', async () => {
    const { commands, published } = bus({ timeoutMs: 100 });
    const { id: _id, ...rest } = close;
    const submitted = Promise.allSettled([commands.submit(rest), commands.submit(rest)]);
    await vi.advanceTimersByTimeAsync(100);
    await submitted;
    const ids = new Set(published.map((command) => (command as { id: string }).id));
    expect(ids.size).toBe(2);
  });
});

describe('command ids and request hashes', () => {
  it('are derived from caller, route and key without collisions', () => {
    const id = idempotentCommandId('user:1', 'POST /a/', 'k');
    expect(idempotentCommandId('user:1', 'POST /a/', 'k')).toBe(id);
    const others = [
      idempotentCommandId('user:2', 'POST /a/', 'k'),
      idempotentCommandId('user:1', 'POST /b/', 'k'),
      idempotentCommandId('user:1', 'POST /a/', 'K'),
      idempotentCommandId('user:1POST', ' /a/', 'k'),
      idempotentCommandId('user:1', 'POST /a/","k', ''),
    ];
    expect(new Set([id, ...others]).size).toBe(6);
  });

  it('depend on the secret', () => {
    const hash = requestHash(Buffer.alloc(32, 1), { name: 'a' });
    expect(hash).toMatch(/^[0-9a-f]{64}$/);
    expect(requestHash(Buffer.alloc(32, 2), { name: 'a' })).not.toBe(hash);
    expect(requestHash(Buffer.alloc(32, 1), { name: 'b' })).not.toBe(hash);
  });
});
