import { afterAll, beforeAll, expect, test } from 'vitest';

import { inTransaction } from '../../../infra/postgres/client.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { commandsMessage } from '../../../schemas/messages/commands.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';

/** Writes of several users at once, and reads from PostgreSQL, on the real log, projector and stores. */

const WALLETS = '/api/dapps/vendor-wallets/';
const CREATE_KEY = '/api/users/auth/create-api-key/';
/** Parallel writes of one user. */
const FLOOD = 100;
/** Of these, published before the log has an outcome. */
const IN_FLIGHT = 16;
/** Of these, answered before the write of another user: those in flight, and a few more rounds on a busy machine. */
const FEW = 40;

interface User {
  readonly token: string;
  readonly key: string;
  readonly actor: string;
}

let world: ApiWorld;
let busy: User;
let quiet: User;

beforeAll(async () => {
  // A busy machine is no reason for a 503.
  world = await apiWorld({ COMMAND_TIMEOUT_MS: '60000' });
  busy = await makeUser('busy');
  quiet = await makeUser('quiet');
});
afterAll(async () => {
  await world.close();
});

async function makeUser(name: string): Promise<User> {
  const { token, id } = await world.makeUser(name);
  const { json } = await world.call('POST', CREATE_KEY, { token, json: { name } });
  return { token, key: json.key, actor: `user:${id}` };
}

let wallets = 0;
const register = async ({ key }: User): Promise<Answer> => {
  const address = `0x${(wallets += 1).toString(16)}`;
  const json = { wallet_address: address, network: 'mainnet', wallet_type: 'any' };
  return await world.call('POST', WALLETS, { headers: { 'api-key': key }, json });
};
const read = async ({ key }: User): Promise<Answer> =>
  await world.call('GET', `${WALLETS}stats/`, { headers: { 'api-key': key } });

const endOfLog = async (): Promise<number> => (await world.kafka.offsets(topics.commands))[0]?.high ?? 0;

/** Actors of the commands from an offset on. */
async function actorsFrom(offset: number): Promise<string[]> {
  const actors: string[] = [];
  for await (const { value } of world.kafka.readRange(topics.commands, 0, offset, await endOfLog())) {
    actors.push(commandsMessage.parse(JSON.parse(String(value))).actor);
  }
  return actors;
}

/** Stops the projector and starts parallel writes of one user; resolves when as many as may be are in the log. */
async function startFlood() {
  const start = await endOfLog();
  await world.stopProjector();
  let answered = 0;
  const flood = Array.from({ length: FLOOD }, async () => {
    const { status } = await register(busy);
    answered += 1;
    return status;
  });
  await expect.poll(async () => (await endOfLog()) - start).toBeGreaterThanOrEqual(IN_FLIGHT);
  return { start, flood, answered: () => answered };
}

test('a user with many parallel writes delays neither the write nor the read of another', async () => {
  const { start, flood, answered } = await startFlood();
  // By then every request of the flood has passed the check of its key.
  for (let i = 0; i < 5; i += 1) expect((await read(busy)).status).toBe(200);

  const write = register(quiet).then(({ status }) => ({ status, answered: answered() }));
  await expect.poll(() => actorsFrom(start)).toContain(quiet.actor);
  expect((await actorsFrom(start)).indexOf(quiet.actor)).toBe(IN_FLIGHT);
  const reading = read(quiet).then(({ status }) => ({ status, answered: answered() }));
  await world.startProjector();

  expect(await reading).toEqual({ status: 200, answered: expect.toSatisfy((count: number) => count < FEW) });
  expect(await write).toEqual({ status: 201, answered: expect.toSatisfy((count: number) => count < FEW) });
  expect(await Promise.all(flood)).toEqual(Array(FLOOD).fill(201));
});

test('a user logs in before the writes that wait in the line of another', async () => {
  const { flood, answered } = await startFlood();
  const login = world.makeUser('late').then(({ token }) => ({ token, answered: answered() }));
  await world.startProjector();
  expect(await login).toEqual({
    token: expect.any(String),
    answered: expect.toSatisfy((count: number) => count < FLOOD),
  });
  expect(await Promise.all(flood)).toEqual(Array(FLOOD).fill(201));
});

test('a key whose reads take long leaves connections to PostgreSQL for others', async () => {
  const schema = (await servedBuilds(world.pool)).schema('tokens');
  const waiting = async (): Promise<number> => {
    const { rows } = await world.pool.query(
      `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '${schema}.tokens'::regclass`,
    );
    return rows[0]?.['count'];
  };
  const search = async ({ key }: User): Promise<number> =>
    (await world.call('GET', '/api/tokens/?search=e', { headers: { 'api-key': key } })).status;
  let flood: Promise<number>[] = [];
  await inTransaction(world.pool, async (tx) => {
    await tx.query(`LOCK TABLE ${schema}.tokens`);
    flood = Array.from({ length: FLOOD }, () => search(busy));
    await expect.poll(waiting).toBeGreaterThanOrEqual(4);
    const others = await Promise.all(Array.from({ length: FEW }, () => read(quiet)));
    expect(new Set(others.map(({ status }) => status))).toEqual(new Set([200]));
    expect(await waiting()).toBe(4);
  });
  expect(await Promise.all(flood)).toEqual(Array(FLOOD).fill(200));
});
