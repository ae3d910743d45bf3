import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { accounts } from '../../../projections/accounts/projector.ts';
import {
  keyByHash,
  keyOfUser,
  sessionByTokenHash,
  userByLogin,
  restrictionsOf,
  usableKeys,
} from '../../../projections/accounts/queries.ts';
import { withNames } from '../../../projections/define.ts';
import { findOutcomes } from '../../../projections/outcomes/queries.ts';
import type { CommandOutcome } from '../../../schemas/command-outcome.ts';
import { commandsMessage } from '../../../schemas/messages/commands.ts';
import type { Command, CommandOf, CommandType } from '../../../schemas/messages/commands.ts';
import { isolatedPool } from '../../support/isolated-pool.ts';

/** Commands folded into real tables. */

const HOUR = 3_600_000;
const NOON = Date.UTC(2026, 0, 1, 12);
const password_hash = '$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA';
const sha = (digit: string): string => digit.repeat(64);

let pool: Pool;
let schema: string;
let schemas = 0;

beforeAll(async () => {
  pool = await isolatedPool();
});
afterAll(() => pool.end());

async function newSchema(): Promise<string> {
  const name = `accounts_${(schemas += 1)}`;
  await pool.query(`CREATE SCHEMA ${name}`);
  await pool.query(withNames(accounts.ddl, { schema: name }));
  return name;
}
beforeEach(async () => {
  schema = await newSchema();
});

/** Where the log of a schema ends. */
const ends = new Map<string, number>();

/** Commands in the order of the log, as many to a transaction as asked, taken by the log when issued or at another time. */
async function fold(
  commands: readonly Command[],
  into = schema,
  together = 1,
  logTime?: number,
): Promise<void> {
  const end = ends.get(into) ?? 0;
  ends.set(into, end + commands.length);
  for (let at = 0; at < commands.length; at += together) {
    await inTransaction(pool, async (tx) => {
      for (const [i, command] of commands.slice(at, at + together).entries()) {
        const timestamp = logTime ?? command.issued_at;
        const meta = { partition: 0, offset: end + at + i, timestamp, schema: into };
        await accounts.fold(tx, commandsMessage.parse(command), meta);
      }
    });
  }
}

async function outcomeOf(id: string): Promise<CommandOutcome | null> {
  const outcomes = await findOutcomes(pool, { schema: () => schema }, [{ id, type: 'user.create' }]);
  return outcomes.get(id) ?? null;
}

async function dump(of = schema): Promise<Record<string, unknown[]>> {
  const tables = ['users', 'sessions', 'api_keys', 'command_outcomes'];
  const found = await Promise.all(
    tables.map(async (table) => (await pool.query(`SELECT * FROM ${of}.${table} ORDER BY 1`)).rows),
  );
  return Object.fromEntries(tables.map((table, i) => [table, found[i] ?? []]));
}

let ids = 0;
function command<T extends CommandType>(
  type: T,
  body: CommandOf<T>['body'],
  rest: { id?: string; issued_at?: number; request_hash?: string } = {},
): Command {
  return commandsMessage.parse({
    v: 1,
    id: `c${(ids += 1)}`,
    issued_at: NOON,
    actor: 'operator',
    request_hash: null,
    ...rest,
    type,
    body,
  });
}

const user = (username: string, rest = {}, email: string | null = null): Command =>
  command('user.create', { username, email, password_hash, is_admin: false }, rest);
const session = (user_id: number, token: string, expires_at: number, rest = {}): Command =>
  command('session.open', { user_id, token_hash: sha(token), expires_at }, rest);
const key = (user_id: number, hash: string, rest = {}): Command =>
  command(
    'api-key.create',
    {
      user_id,
      name: `key ${hash}`,
      key_hash: sha(hash),
      prefix: 'tds_12345678',
      allowed_origins: ['https://a.test'],
      allowed_ips: ['10.0.0.0/8'],
      rate_limit_per_hour: 7,
    },
    rest,
  );

describe('commands', () => {
  it('are decided in log order, with ids of the offset plus one', async () => {
    await fold([user('alice', {}, 'a@x.test'), session(1, 'a', NOON + HOUR), key(1, 'b'), key(9, 'c')]);
    expect(await userByLogin(pool, schema, 'A@X.test')).toMatchObject({ id: 1, username: 'alice' });
    expect(await sessionByTokenHash(pool, schema, sha('a'))).toMatchObject({
      user_id: 1,
      expires_at: NOON + HOUR,
    });
    expect(await keyByHash(pool, schema, sha('b'))).toEqual({
      id: 3,
      user_id: 1,
      allowed_origins: ['https://a.test'],
      allowed_ips: ['10.0.0.0/8'],
      rate_limit_per_hour: 7,
      expires_at: null,
    });
    expect(await keyByHash(pool, schema, sha('c'))).toBeNull();
  });

  it('that are rejected store an outcome and change nothing', async () => {
    await fold([user('alice', {}, 'bob')]);
    const before = await dump();
    const refused = [
      user('ALICE', { id: 'taken' }),
      user('bob', { id: 'taken-by-e-mail' }),
      user('carol', { id: 'e-mail-taken' }, 'Alice'),
      key(99, 'f', { id: 'no-user' }),
      session(99, 'f', NOON, { id: 'no-user-2' }),
      command('session.close', { token_hash: sha('e') }, { id: 'no-session' }),
      command('api-key.delete', { user_id: 1, key_id: 5 }, { id: 'no-key' }),
      command('api-key.update', { user_id: 1, key_id: 5, name: 'other' }, { id: 'no-key-2' }),
      command('user.set-password', { user_id: 5, password_hash }, { id: 'no-user-3' }),
    ];
    await fold(refused, schema, 3);
    const after = await dump();
    for (const table of ['users', 'sessions', 'api_keys']) expect(after[table]).toEqual(before[table]);
    for (const { id } of refused) {
      expect(await outcomeOf(id)).toMatchObject({ accepted: false });
    }
  });

  it('that are repeated have the first outcome, and change nothing', async () => {
    const first = key(1, 'b', { id: 'once', request_hash: sha('1') });
    const second = key(1, 'c', { id: 'once', request_hash: sha('2') });
    await fold([user('alice'), first]);
    const before = await dump();
    await fold([first, second, first], schema, 3);
    expect(await dump()).toEqual(before);
    expect((await outcomeOf('once'))?.request_hash).toBe(sha('1'));
  });

  it('stay rejected when repeated, even if they would be accepted by then', async () => {
    const early = key(2, 'b', { id: 'early' });
    await fold([early, user('alice'), early]);
    expect(await outcomeOf('early')).toMatchObject({ accepted: false });
    expect((await dump())['api_keys']).toEqual([]);
  });

  it('have outcomes for 48 hours of log time', async () => {
    const at = (hours: number, id: string) => user(id, { id, issued_at: NOON + hours * HOUR });
    await fold([at(0, 'old'), at(1, 'newer'), at(47.999, 'tick')]);
    expect(await outcomeOf('old')).not.toBeNull();
    await fold([at(48, 'tock')]);
    expect(await outcomeOf('old')).toBeNull();
    expect(await outcomeOf('newer')).not.toBeNull();
    // A command that was written long ago is decided all the same, and its outcome is known for a while.
    await fold([at(-100, 'late')]);
    expect(await outcomeOf('late')).toMatchObject({ accepted: true });
  });

  it('are decided again when repeated after 48 hours', async () => {
    const at = (hours: number, username: string) =>
      user(username, { id: 'same', issued_at: NOON + hours * HOUR });
    await fold([at(0, 'alice'), at(47, 'bob'), at(48, 'carol')]);
    const users = await Promise.all(['alice', 'bob', 'carol'].map((name) => userByLogin(pool, schema, name)));
    expect(users.map((found) => found?.id)).toEqual([1, undefined, 3]);
    expect(await outcomeOf('same')).toMatchObject({ accepted: true, result: { id: 3 } });
  });

  it('delete sessions that have expired by the time of the command', async () => {
    await fold([
      user('alice'),
      session(1, 'a', NOON + HOUR),
      session(1, 'b', NOON + 2 * HOUR),
      session(1, 'c', NOON + 9 * HOUR, { issued_at: NOON + HOUR }),
    ]);
    expect(await sessionByTokenHash(pool, schema, sha('a'))).toBeNull();
    expect(await sessionByTokenHash(pool, schema, sha('b'))).not.toBeNull();
  });

  it('delete nothing that is valid when the clock of a host is days fast', async () => {
    await fold([user('alice', { id: 'before' }), session(1, 'a', NOON + HOUR)]);
    const isFast = { issued_at: NOON + 72 * HOUR };
    await fold([session(1, 'b', NOON + 96 * HOUR, isFast)], schema, 1, NOON + 1);
    expect(await sessionByTokenHash(pool, schema, sha('a'))).not.toBeNull();
    expect(await outcomeOf('before')).not.toBeNull();
  });

  it('end the sessions of a user whose password is set, and of no other', async () => {
    await fold([
      user('alice'),
      user('bob'),
      session(1, 'a', NOON + HOUR),
      session(2, 'b', NOON + HOUR),
      command('user.set-password', { user_id: 1, password_hash: `${password_hash}new` }),
    ]);
    expect(await sessionByTokenHash(pool, schema, sha('a'))).toBeNull();
    expect(await sessionByTokenHash(pool, schema, sha('b'))).not.toBeNull();
    expect(await userByLogin(pool, schema, 'alice')).toMatchObject({ password_hash: `${password_hash}new` });
  });

  it('delete keys of their owner only', async () => {
    const remove = (user_id: number, id: string) => command('api-key.delete', { user_id, key_id: 3 }, { id });
    await fold([user('alice'), user('bob'), key(1, 'b'), remove(2, 'foreign')]);
    expect(await keyByHash(pool, schema, sha('b'))).not.toBeNull();
    await fold([remove(1, 'own')]);
    expect(await keyByHash(pool, schema, sha('b'))).toBeNull();
  });

  it('change the given fields of a key, for its owner only', async () => {
    const change = (user_id: number, fields: Partial<CommandOf<'api-key.update'>['body']>) =>
      command('api-key.update', { user_id, key_id: 3, ...fields });
    await fold([user('alice'), user('bob'), key(1, 'b'), key(1, 'c')]);
    const other = await keyByHash(pool, schema, sha('c'));
    await fold([
      change(1, { allowed_ips: [], expires_at: NOON + HOUR }),
      change(1, {}),
      change(2, { allowed_origins: [] }),
      change(1, { rate_limit_per_hour: null }),
    ]);
    expect(await keyByHash(pool, schema, sha('b'))).toEqual({
      id: 3,
      user_id: 1,
      allowed_origins: ['https://a.test'],
      allowed_ips: [],
      rate_limit_per_hour: null,
      expires_at: NOON + HOUR,
    });
    const restrictions = async () => (await usableKeys(pool, schema, [3], NOON)).get(3);
    const before = await restrictions();
    expect(before).toBe(restrictionsOf({ allowed_origins: ['https://a.test'], allowed_ips: [] }));
    await fold([change(1, { name: 'renamed', expires_at: null })]);
    expect(await restrictions()).toBe(before);
    await fold([change(1, { allowed_origins: ['b.test'] })]);
    // By this the open streams of the key are ended.
    expect(await restrictions()).not.toBe(before);
    const renamed = { name: 'renamed', expires_at: null, allowed_origins: ['b.test'] };
    expect(await keyOfUser(pool, schema, 1, 3)).toMatchObject(renamed);
    expect(await keyOfUser(pool, schema, 2, 3)).toBeNull();
    expect(await keyByHash(pool, schema, sha('c'))).toEqual(other);
  });
});

describe('a replay', () => {
  it('gives the same tables for any split into transactions', async () => {
    const log: Command[] = [user('user0'), user('user1')];
    for (let i = 0; i < 300; i += 1) {
      const issued_at = NOON + i * HOUR * 0.5;
      const rest = { issued_at, id: `r${(i * 7) % 250}` };
      const who = 1 + (i % 3);
      const digit = (i % 16).toString(16);
      const kinds = [
        () => user(`user${i % 50}`, rest),
        () => session(who, digit, issued_at + 9 * HOUR, rest),
        () => key(who, digit, rest),
        // The id is the offset plus one, of a log that begins with two users: the key of three and of six commands ago.
        () => command('api-key.update', { user_id: who, key_id: i, name: `new ${i}` }, rest),
        () => command('api-key.delete', { user_id: who, key_id: i - 3 }, rest),
        () => command('session.close', { token_hash: sha(((i - 12) & 15).toString(16)) }, rest),
      ];
      log.push((kinds[Math.floor(i / 3) % kinds.length] ?? kinds[0]!)());
    }
    await fold(log);
    const first = await dump();
    for (const table of Object.values(first)) expect(table.length).toBeGreaterThan(0);
    const { rows } = await pool.query(
      `SELECT DISTINCT type FROM ${schema}.command_outcomes WHERE accepted ORDER BY type`,
    );
    expect(rows.map(({ type }) => type)).toEqual([
      'api-key.create',
      'api-key.delete',
      'api-key.update',
      'session.close',
      'session.open',
      'user.create',
    ]);
    for (const together of [7, 302]) {
      const again = await newSchema();
      await fold(log, again, together);
      expect(await dump(again)).toEqual(first);
    }
  });
});
