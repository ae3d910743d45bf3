import { setTimeout as sleep } from 'node:timers/promises';

import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { z } from 'zod';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { eventIndex } from '../../../schemas/decode/index.ts';
import type { Transfer } from '../../../schemas/decode/index.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { abusers, startAbuser } from '../../support/abusers.ts';
import type { Abuser, Outcomes, Target } from '../../support/abusers.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { createRandom } from '../../support/random.ts';
import { writeSmallChain } from '../../support/small-chain.ts';
import { matching } from '../../support/transfer-oracle.ts';
import type { Query } from '../../support/transfer-oracle.ts';
import { aTransfer } from '../../support/transfer-world.ts';
import type { WorldBlock } from '../../support/transfer-world.ts';

/** Polite callers get right answers while abusers of every kind come and go. */

/** At full length 300. */
const SECONDS = Number(process.env['ABUSE_SECONDS'] ?? 60);
const SEED = Number(process.env['ABUSE_SEED'] ?? Date.now() % 1_000_000);
const HOT = toFelt(0x407n);
const HOARDER = toFelt(0x40a4d34n);
const COIN = toFelt(0xc01n);
const HOARDED_TOKENS = 6000;
/** Blocks of the abusers, and above them blocks that polite callers ask for; they have nothing in common. */
const ABUSED = { blocks: 240, perBlock: 500 };
const POLITE = { blocks: 20, perBlock: 60, accounts: 50, tokens: 5 };
const PAGE = 50;

const random = createRandom(SEED);
const politeAccount = (): Felt => toFelt(0xacc_0000n + BigInt(random.below(POLITE.accounts)));
const politeToken = (): Felt => toFelt(0x7074_0000n + BigInt(random.below(POLITE.tokens)));
const hashAt = (height: number, position: number): Felt => toFelt(BigInt(height) * 1000n + BigInt(position));
const politeHeight = (): number => ABUSED.blocks + random.below(POLITE.blocks);

function blockOf(height: number, count: number, transferAt: (position: number) => Transfer): WorldBlock {
  const transfers = Array.from({ length: count }, (_, position) => transferAt(position));
  return { height, timestamp: 1_700_000_000 + height, chunk: 'blocks-0', transfers };
}

const abused = Array.from({ length: ABUSED.blocks }, (_, height) =>
  blockOf(height, ABUSED.perBlock, (position) => {
    const made = height * ABUSED.perBlock + position;
    const about = { from: HOT, position, txHash: hashAt(height, position) };
    return made < HOARDED_TOKENS
      ? aTransfer({ ...about, token: toFelt(0x70c_0000n + BigInt(made)), to: HOARDER })
      : aTransfer({ ...about, token: COIN, to: toFelt(0xacc_ffff_0000n + BigInt(random.below(5000))) });
  }),
);
const polite = Array.from({ length: POLITE.blocks }, (_, index) =>
  blockOf(ABUSED.blocks + index, POLITE.perBlock, (position) =>
    aTransfer({
      token: politeToken(),
      from: politeAccount(),
      to: politeAccount(),
      position,
      txHash: hashAt(ABUSED.blocks + index, position),
    }),
  ),
);
const chain = new Map(polite.map((block) => [block.height, block]));

let world: ApiWorld;
let target: Target;
let politeKey: string;
beforeAll(async () => {
  world = await apiWorld();
  const { apiKey } = await writeSmallChain(world, [...abused, ...polite]);
  const { token } = await world.makeUser('abuser');
  const made = await world.call('POST', '/api/users/auth/create-api-key/', { token, json: { name: 'k' } });
  politeKey = apiKey;
  target = { baseUrl: world.url, apiKey: made.json.key, hotAccount: HOT, hotToken: COIN, hoarder: HOARDER };
});
afterAll(() => world?.close());

const page = z.object({
  count: z.number(),
  results: z.array(z.object({ block: z.number(), event_index: z.number() })),
});

const politeQuery = (): Query =>
  random.pick<() => Query>([
    () => ({ account: politeAccount() }),
    () => ({ to_account: politeAccount(), token: politeToken(), order: 'asc' }),
    () => ({ txhash: hashAt(politeHeight(), random.below(POLITE.perBlock)) }),
    () => ({ token: politeToken() }),
    () => ({ account: politeAccount(), from_block: String(politeHeight()) }),
  ])();

/** What the API has logged about a request. */
const logOf = (requestId: unknown): string =>
  world
    .logged()
    .split('\n')
    .filter((line) => line.includes(String(requestId)))
    .join('\n');

/** Checks an answer; false if there was none. */
async function isAnswered(query: Query): Promise<boolean> {
  const path = `/api/transfers/?${new URLSearchParams({ ...query, limit: String(PAGE) }).toString()}`;
  const { status, json, text } = await world.call('GET', path, { headers: { 'api-key': politeKey } });
  if (status === 503) {
    console.warn(`${path}: ${text}\n${logOf(json?.request_id)}`);
    return false;
  }
  expect(status, `${path}: ${text}`).toBe(200);
  const found = page.parse(json);
  const expected = matching(chain, query);
  expect(found.count, path).toBe(expected.length);
  expect(found.results, path).toEqual(
    expected
      .slice(0, PAGE)
      .map(({ block, position, item }) => ({ block, event_index: eventIndex(position, item) })),
  );
  return true;
}

/** Abusers come and go at random; returns what each kind has got, once all have left. */
async function abuse(signal: AbortSignal): Promise<Map<string, Outcomes[]>> {
  const got = new Map<string, Outcomes[]>();
  const present = new Map<Abuser, ReturnType<typeof startAbuser>>();
  const leave = async (abuser: Abuser): Promise<void> => {
    const outcomes = await present.get(abuser)?.leave();
    present.delete(abuser);
    if (outcomes !== undefined) got.set(abuser.name, [...(got.get(abuser.name) ?? []), outcomes]);
  };
  for (let turn = 0; !signal.aborted; turn += 1) {
    // Each kind comes once, then whoever is drawn.
    const abuser = abusers[turn] ?? random.pick(abusers);
    if (present.has(abuser)) await leave(abuser);
    else present.set(abuser, startAbuser(abuser, target));
    if (present.size > 2) await leave(random.pick([...present.keys()]));
    await sleep(2000 + random.below(4000), undefined, { signal }).catch(() => {});
  }
  for (const abuser of present.keys()) await leave(abuser);
  return got;
}

test(
  `every polite answer is right beside abusers that come and go (ABUSE_SEED=${SEED})`,
  async () => {
    const ended = AbortSignal.timeout(SECONDS * 1000);
    const abusing = abuse(ended);
    let answers = 0;
    let refusals = 0;
    while (!ended.aborted) {
      if (await isAnswered(politeQuery())) answers += 1;
      else refusals += 1;
      await sleep(20);
    }
    const got = await abusing;
    expect(answers).toBeGreaterThan(SECONDS / 2);
    // A machine that stands still for seconds makes a read late, whoever else is there.
    expect(refusals).toBeLessThanOrEqual(answers / 200);
    expect(got.size).toBeGreaterThan(2);

    // What they asked for ends with them.
    const owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
    const running = {
      name: 'test.running',
      sql: `SELECT query FROM system.processes
        WHERE current_database = currentDatabase() AND elapsed > 0.5 AND http_user_agent != ''`,
      row: z.object({ query: z.string() }),
    };
    await vi.waitFor(async () => expect(await owner.rows(running)).toEqual([]), { timeout: 30_000 });
    await owner.close();
  },
  SECONDS * 1000 + 240_000,
);
