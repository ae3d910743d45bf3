import { describe, expect, it } from 'vitest';

import { limitCommands } from '../../../../api/commands/command-queue.ts';
import type { CommandLimits } from '../../../../api/commands/command-queue.ts';
import { createCommandBus } from '../../../../infra/commands/bus.ts';
import type { CommandRequest } from '../../../../infra/commands/bus.ts';
import type { CommandOutcome } from '../../../../schemas/command-outcome.ts';

/** Sharing the places for commands in flight, with a log that keeps what is published and decides when the test says so. */

const LIMITS = { inFlight: 6, inFlightPerUser: 4, maxWaiting: 250 };
const LONG_MS = 60_000;
const accepted: CommandOutcome = { accepted: true, request_hash: null, result: {} };
const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

function world({ timeoutMs = LONG_MS, ...limits }: Partial<CommandLimits> & { timeoutMs?: number } = {}) {
  const published: string[] = [];
  const outcomes = new Map<string, CommandOutcome>();
  let decided = 0;
  let made = 0;
  const bus = createCommandBus({
    publisher: {
      async publish(_topic, messages) {
        published.push(...messages.map(({ value }) => (value as { id: string }).id));
        return [];
      },
    },
    findOutcomes: async (submitted) =>
      new Map([...outcomes].filter(([id]) => submitted.some((command) => command.id === id))),
    timeoutMs,
    now: () => 1_700_000_000_000,
  });
  const commandsFor = limitCommands(bus, { timeoutMs, ...LIMITS, ...limits });
  /** Decides the published commands that are undecided, at most `most`. */
  const decide = async (most = Infinity): Promise<void> => {
    const next = published.slice(decided, decided + most);
    decided += next.length;
    for (const id of next) outcomes.set(id, accepted);
    for (const id of next) bus.notify(id);
    await settled();
  };
  const command = (user: string): CommandRequest => ({
    type: 'session.close',
    actor: user,
    id: `${user} ${(made += 1)}`,
    body: { token_hash: 'a'.repeat(64) },
  });
  return {
    published,
    /** Users of the published commands, in order. */
    users: () => published.map((id) => id.split(' ')[0]),
    submit: (user: string, client = new AbortController()) =>
      commandsFor({
        caller: () => ({ user, name: user, isAnonymous: user.startsWith('network') }),
        signal: client.signal,
      }).submit(command(user)),
    decide,
    /** Decides what is published until all of these have an outcome. */
    finish: async (submitted: readonly Promise<CommandOutcome>[]): Promise<void> => {
      let isDone = false;
      const all = Promise.all(submitted).finally(() => {
        isDone = true;
      });
      while (!isDone) await decide();
      expect(await all).toEqual(submitted.map(() => accepted));
    },
  };
}

const many = <T>(count: number, make: () => Promise<T>): Promise<T>[] => Array.from({ length: count }, make);
const overloaded = { status: 503, code: 'overloaded', headers: { 'Retry-After': '1' } };

describe('commands in flight', () => {
  it('are a few of each user: the one command of another is published among the first', async () => {
    const { submit, users, finish } = world();
    const flood = many(200, () => submit('a'));
    await settled();
    expect(users()).toEqual(Array(4).fill('a'));
    const one = submit('b');
    await settled();
    expect(users()).toEqual([...Array<string>(4).fill('a'), 'b']);
    await finish([one, ...flood]);
  });

  it('are bounded in total, and users take turns for a free place', async () => {
    const { submit, users, decide, finish } = world();
    const flood = [...many(50, () => submit('a')), ...many(50, () => submit('b'))];
    await settled();
    expect(users()).toHaveLength(6);
    const others = ['c', 'd', 'e'].map((user) => submit(user));
    await settled();
    expect(users()).toHaveLength(6);
    await decide(5);
    // Each waiting line has had its turn, in whichever order.
    expect(new Set(users().slice(6, 11))).toEqual(new Set(['a', 'b', 'c', 'd', 'e']));
    await finish([...others, ...flood]);
  });

  it('of networks have half of the places, and take turns apart from users', async () => {
    const { submit, users, decide, finish } = world();
    const networks = Array.from({ length: 100 }, (_, index) => submit(`network${index}`));
    await settled();
    expect(users()).toHaveLength(3);
    const ofUsers = [...many(10, () => submit('a')), ...many(10, () => submit('b'))];
    await settled();
    expect(users().slice(3)).toEqual(['a', 'a', 'a']);
    for (let place = 0; place < 12; place += 1) await decide(1);
    expect(users()).toHaveLength(18);
    expect(users().filter((user) => user?.startsWith('network') === false)).toHaveLength(9);
    await finish([...networks, ...ofUsers]);
  });

  it('of one user are published in order of arrival', async () => {
    const { submit, published, finish } = world({ inFlightPerUser: 1 });
    const submitted = many(20, () => submit('a'));
    await finish(submitted);
    expect(published).toEqual(Array.from({ length: 20 }, (_, index) => `a ${index + 1}`));
  });
});

describe('a command beyond its line', () => {
  it('is refused at once and never published, and others are not', async () => {
    const { submit, published, finish } = world({ maxWaiting: 10 });
    const line = many(14, () => submit('a'));
    const refused = await Promise.allSettled(many(3, () => submit('a')));
    expect(refused.map((result) => result.status)).toEqual(Array(3).fill('rejected'));
    await expect(submit('a')).rejects.toMatchObject(overloaded);
    const other = submit('b');
    await finish([...line, other]);
    expect(published).toHaveLength(15);
    await finish([submit('a')]);
  });

  it('is refused when its time in line is over, and never published', async () => {
    const { submit, published } = world({ timeoutMs: 200, inFlightPerUser: 1 });
    const first = submit('a');
    const second = submit('a');
    await expect(second).rejects.toMatchObject(overloaded);
    await expect(first).rejects.toMatchObject({ code: 'COMMAND_TIMEOUT' });
    expect(published).toEqual(['a 1']);
  });
});

describe('a place', () => {
  it('is freed when its command times out', async () => {
    const { submit, published } = world({ timeoutMs: 200, inFlight: 1 });
    await expect(submit('a')).rejects.toMatchObject({ code: 'COMMAND_TIMEOUT' });
    const next = submit('b');
    await settled();
    expect(published).toHaveLength(2);
    await expect(next).rejects.toMatchObject({ code: 'COMMAND_TIMEOUT' });
  });

  it('in line is freed when its client disconnects, and its command is never published', async () => {
    const { submit, published, finish } = world({ inFlightPerUser: 1, maxWaiting: 1 });
    const client = new AbortController();
    const first = submit('a');
    const gone = submit('a', client);
    await expect(submit('a')).rejects.toMatchObject(overloaded);
    client.abort();
    await expect(gone).rejects.toMatchObject({ status: 503 });
    await finish([first, submit('a')]);
    expect(published).toEqual(['a 1', 'a 4']);
  });

  it('of a published command is kept until the outcome when its client disconnects', async () => {
    const { submit, published, finish } = world({ inFlightPerUser: 1 });
    const client = new AbortController();
    const gone = submit('a', client);
    const next = submit('a');
    await settled();
    client.abort();
    await settled();
    expect(published).toEqual(['a 1']);
    await finish([gone, next]);
  });
});
