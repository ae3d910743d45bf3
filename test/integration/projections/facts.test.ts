import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { createCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { openBuild } from '../../../projections/engine/builds.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { chainStatus } from '../../../projections/chain-status/projector.ts';
import { chainStatusRow, chunkRows, finalHeight } from '../../../projections/chain-status/queries.ts';
import type { PostgresProjection } from '../../../projections/define.ts';
import { quarantine } from '../../../projections/quarantine/projector.ts';
import {
  quarantineCounts,
  quarantineEntries,
  quarantineEntry,
} from '../../../projections/quarantine/queries.ts';
import { tokens } from '../../../projections/tokens/projector.ts';
import { tokensByAddress } from '../../../projections/tokens/queries.ts';
import type { TokenRow } from '../../../projections/tokens/queries.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { tokensMessage } from '../../../schemas/messages/tokens.ts';
import type { TokensMessage } from '../../../schemas/messages/tokens.ts';
import { topics } from '../../../schemas/topics.ts';
import type { ChainStatusMessage } from '../../../schemas/messages/chain-status.ts';
import type { QuarantineMessage } from '../../../schemas/messages/quarantine.ts';
import { isolatedPool } from '../../support/isolated-pool.ts';

let pool: Pool;
const schemas = new Map<string, string>();

beforeAll(async () => {
  pool = await isolatedPool();
  for (const projection of [tokens, chainStatus, quarantine]) {
    await openBuild(pool, null, projection);
    schemas.set(projection.name, (await servedBuilds(pool)).schema(projection.name));
  }
});
afterAll(() => pool.end());

const schemaOf = ({ name }: { name: string }): string => schemas.get(name) ?? '';

/** Folds messages, the first at `from`, as the runner would: each in its place. */
async function fold<M>(projection: PostgresProjection<M>, messages: readonly M[], from = 0): Promise<void> {
  await inTransaction(pool, async (tx) => {
    for (const [index, message] of messages.entries()) {
      const offset = from + index;
      await projection.fold(tx, projection.topic.schema.parse(message), {
        partition: 0,
        offset,
        timestamp: 0,
        schema: schemaOf(projection),
      });
    }
  });
}

describe('tokens', () => {
  const COINS = [1n, 2n, 3n].map(toFelt);
  const token = fc.constantFrom(...COINS);
  const text = fc.option(fc.string({ unit: 'binary', maxLength: 12 }));
  const flag = fc.boolean();
  const at = fc.integer({ min: 0, max: 2 ** 50 });
  const message: fc.Arbitrary<TokensMessage> = fc.oneof(
    fc.record({
      type: fc.constant('token.described' as const),
      v: fc.constant(1 as const),
      token,
      standard: fc.constantFrom('erc20' as const, 'erc721' as const, 'unknown' as const),
      class_hash: fc.option(fc.constant(toFelt(0xc1n))),
      name: text,
      symbol: text,
      decimals: fc.option(fc.integer({ min: 0, max: 255 })),
      block: fc.integer({ min: 0, max: 0xffff_fffe }),
      observed_at: at,
    }),
    fc.record(
      {
        type: fc.constant('token.listed' as const),
        v: fc.constant(1 as const),
        token,
        verified: flag,
        common: flag,
        public: flag,
        hidden: flag,
        logo: text,
        observed_at: at,
      },
      { requiredKeys: ['type', 'v', 'token', 'observed_at'] },
    ),
  );

  /** The table in plain words: the last description, and for each flag the last list that named it. */
  function expected(messages: readonly TokensMessage[], address: Felt): TokenRow | undefined {
    const about = messages.filter((one) => one.token === address);
    if (about.length === 0) return undefined;
    const described = about.findLast((one) => one.type === 'token.described');
    const lists = about.filter((one) => one.type === 'token.listed');
    const last = <K extends 'verified' | 'common' | 'public' | 'hidden'>(key: K): boolean =>
      lists.findLast((list) => list[key] !== undefined)?.[key] ?? false;
    const visible = (value: string | null | undefined): string | null =>
      value?.replaceAll('\u0000', '␀') ?? null;
    return {
      token: address,
      standard: described?.standard ?? null,
      class_hash: described?.class_hash ?? null,
      name: visible(described?.name),
      symbol: visible(described?.symbol),
      decimals: described?.decimals ?? null,
      first_block: described?.block ?? null,
      described_at: described?.observed_at ?? null,
      verified: last('verified'),
      common: last('common'),
      public: last('public'),
      hidden: last('hidden'),
      logo: visible(lists.findLast((list) => list.logo !== undefined)?.logo),
      listed_at: lists.at(-1)?.observed_at ?? null,
    };
  }

  test('hold the last description and the last value of every flag, folded once or twice', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(message, { maxLength: 12 }), async (messages) => {
        await pool.query(`TRUNCATE ${schemaOf(tokens)}.tokens`);
        const wanted = new Map(
          COINS.flatMap((address) => {
            const row = expected(messages, address);
            return row === undefined ? [] : [[address, row] as const];
          }),
        );
        for (let time = 0; time < 2; time += 1) {
          await fold(tokens, messages);
          expect(await tokensByAddress(pool, schemaOf(tokens), COINS)).toEqual(wanted);
        }
      }),
      { numRuns: 60 },
    );
  });

  test('keep the message with the higher offset of two of a kind, whichever is folded last', async () => {
    const address = toFelt(77n);
    const described = (name: string): TokensMessage => ({
      type: 'token.described',
      v: 1,
      token: address,
      standard: 'erc20',
      class_hash: null,
      name,
      symbol: null,
      decimals: null,
      block: 1,
      observed_at: 1,
    });
    const listed = (logo: string): TokensMessage => ({
      type: 'token.listed',
      v: 1,
      token: address,
      logo,
      observed_at: 1,
    });
    await fold(tokens, [described('new'), listed('new')], 50);
    await fold(tokens, [described('old'), listed('old')], 40);
    const row = (await tokensByAddress(pool, schemaOf(tokens), [address])).get(address);
    expect([row?.name, row?.logo]).toEqual(['new', 'new']);
  });

  test('finds a part of a name by an index', async () => {
    const client = await pool.connect();
    try {
      await client.query('SET enable_seqscan = off');
      const { rows } = await client.query<{ 'QUERY PLAN': string }>(
        `EXPLAIN SELECT token FROM ${schemaOf(tokens)}.tokens WHERE name ILIKE '%ether%' OR symbol ILIKE '%ether%'`,
      );
      expect(rows.map((row) => row['QUERY PLAN']).join('\n')).toContain('tokens_by_text');
    } finally {
      client.release(true);
    }
  });

  test('stores any text that the schema of the message accepts', async () => {
    const described = tokensMessage.parse({
      type: 'token.described',
      v: 1,
      token: toFelt(9n),
      standard: 'erc20',
      class_hash: null,
      name: 'a\u0000b\ud800',
      symbol: '\u202e💩',
      decimals: 0,
      block: 0,
      observed_at: 0,
    });
    await fold(tokens, [described], 1000);
    const row = (await tokensByAddress(pool, schemaOf(tokens), [toFelt(9n)])).get(toFelt(9n));
    expect([row?.name, row?.symbol]).toEqual(['a␀b\ufffd', '\u202e💩']);
  });
});

describe('chain status', () => {
  const status = async () => await chainStatusRow(pool, schemaOf(chainStatus));
  const l1 = (height: number, observed_at: number): ChainStatusMessage => ({
    type: 'l1.accepted',
    v: 1,
    height,
    observed_at,
  });
  const opened = (
    name: string,
    start: number,
    end: number | null,
    observed_at: number,
  ): ChainStatusMessage => ({
    type: 'chunk.opened',
    v: 1,
    name,
    start,
    end,
    observed_at,
  });
  const finished = (name: string, observed_at: number): ChainStatusMessage => ({
    type: 'chunk.finished',
    v: 1,
    name,
    observed_at,
  });

  test('is empty before the first message', async () => {
    expect(new Set(Object.values(await status()))).toEqual(new Set([null]));
    expect(await chunkRows(pool, schemaOf(chainStatus))).toEqual([]);
  });

  test('the head may go down, the height accepted on L1 may not', async () => {
    await fold(chainStatus, [
      {
        type: 'network.identified',
        v: 1,
        observed_at: 1,
        chain_id: toFelt(0x534e5f4d41494en),
        spec_version: '0.10.0',
        has_header_counts: true,
        has_l1_tag: false,
      },
      { type: 'head.seen', v: 1, observed_at: 2, height: 10, hash: toFelt(10n) },
      l1(7, 3),
      { type: 'head.seen', v: 1, observed_at: 4, height: 8, hash: toFelt(8n) },
      l1(5, 5),
    ]);
    expect(await status()).toEqual({
      chain_id: toFelt(0x534e5f4d41494en),
      spec_version: '0.10.0',
      has_header_counts: true,
      has_l1_tag: false,
      head_height: 8,
      head_hash: toFelt(8n),
      head_seen_at: 4,
      l1_height: 7,
      l1_seen_at: 3,
    });
  });

  test('a height is final once every served table has read the log to where it was found', async () => {
    const final = async () => await finalHeight(pool, schemaOf(chainStatus));
    const found = (height: number, ...ends: number[]): ChainStatusMessage => ({
      ...(l1(height + 5, 1) as Extract<ChainStatusMessage, { type: 'l1.accepted' }>),
      final: { height, log_ends: ends },
    });
    expect(await final()).toBe(null);
    const topicId = 'id';
    const log = { topic: topics.chainBlocks, topicId };
    const builds = [1001, 1002];
    for (const build of builds) {
      await pool.query(
        `INSERT INTO tds.builds (build, projection, version, shape_hash, state) VALUES ($1, $2, 1, '', 'serving')`,
        [build, `blocks-${build}`],
      );
      const owner = { consumer: `blocks-${build}`, build };
      await createCheckpoints(pool, owner, log, new Map([0, 1].map((partition) => [partition, 0])));
    }
    const read = async (build: number, partition: number, next: number): Promise<void> => {
      await pool.query('UPDATE tds.checkpoints SET next_offset = $3 WHERE build = $1 AND partition = $2', [
        build,
        partition,
        next,
      ]);
    };
    await fold(chainStatus, [found(10, 0, 0), found(20, 5, 3), found(20, 9, 9), found(30, 8, 3)]);
    expect(await final()).toBe(10);
    for (const build of builds) {
      await read(build, 0, 6);
      expect(await final()).toBe(10);
    }
    await read(1001, 1, 3);
    expect(await final()).toBe(10);
    await read(1002, 1, 3);
    expect(await final()).toBe(20);
    for (const build of builds) await read(build, 0, 8);
    expect(await final()).toBe(30);
  });

  test('chunks keep the times of their first opening and finishing, and reopen with another range', async () => {
    const messages = [
      opened('live', 100, null, 1),
      opened('0-99', 0, 99, 2),
      finished('0-99', 3),
      opened('0-99', 0, 99, 4),
      finished('0-99', 5),
    ];
    const [backfill, live] = [
      { name: '0-99', start: 0, end: 99, opened_at: 2, finished_at: 3 },
      { name: 'live', start: 100, end: null, opened_at: 1, finished_at: null },
    ];
    await fold(chainStatus, messages);
    expect(await chunkRows(pool, schemaOf(chainStatus))).toEqual([backfill, live]);
    await fold(chainStatus, [opened('0-99', 0, 98, 6)]);
    expect(await chunkRows(pool, schemaOf(chainStatus))).toEqual([
      { ...backfill, end: 98, opened_at: 6, finished_at: null },
      live,
    ]);
  });
});

describe('quarantine', () => {
  const event = (id: string, reason: string, quarantined_at: number): QuarantineMessage => ({
    type: 'event.quarantined',
    v: 1,
    id,
    reason,
    block: 5,
    block_hash: toFelt(0xb5n),
    position: 3,
    transaction_hash: toFelt(0x7n),
    event: { from_address: toFelt(1n), keys: [toFelt(2n)], data: [] },
    quarantined_at,
  });
  const unreadable = (id: string, quarantined_at: number): QuarantineMessage => ({
    type: 'message.quarantined',
    v: 1,
    id,
    reason: 'not JSON \u0000',
    topic: 'chain.blocks',
    partition: 3,
    offset: '17',
    value: Buffer.from('{').toString('base64'),
    quarantined_at,
  });
  const resolved = (
    id: string,
    resolution: 'reverted' | 'repaired' | 'skipped',
    resolved_at: number,
  ): QuarantineMessage => ({ type: 'quarantine.resolved', v: 1, id, resolution, resolved_at });
  const open = async () =>
    (await quarantineEntries(pool, schemaOf(quarantine), { open: true, limit: 10 })).map(({ id }) => id);

  test('lists open entries, newest first, and counts them by reason', async () => {
    await fold(quarantine, [
      event('a', 'odd shape', 1),
      event('b', 'odd shape', 2),
      event('a', 'odd shape', 1),
      unreadable('chain.blocks:3:17', 3),
    ]);
    expect(await open()).toEqual(['chain.blocks:3:17', 'b', 'a']);
    expect(await quarantineCounts(pool, schemaOf(quarantine))).toEqual([
      { kind: 'event', reason: 'odd shape', count: 2 },
      { kind: 'message', reason: 'not JSON ␀', count: 1 },
    ]);
    expect(await quarantineEntry(pool, schemaOf(quarantine), 'b')).toMatchObject({
      kind: 'event',
      block: 5,
      position: 3,
      event: { from_address: toFelt(1n), keys: [toFelt(2n)], data: [] },
      resolution: null,
      topic: null,
    });
    expect(await quarantineEntry(pool, schemaOf(quarantine), 'nobody')).toBeNull();
  });

  test('keeps a resolved entry, and opens it when it is quarantined again', async () => {
    await fold(quarantine, [resolved('a', 'reverted', 10), resolved('nobody', 'skipped', 10)]);
    expect(await open()).toEqual(['chain.blocks:3:17', 'b']);
    // Said again, the first settling stands.
    await fold(quarantine, [resolved('a', 'repaired', 11)]);
    expect(await quarantineEntry(pool, schemaOf(quarantine), 'a')).toMatchObject({
      resolution: 'reverted',
      resolved_at: 10,
    });
    const all = await quarantineEntries(pool, schemaOf(quarantine), { open: false, limit: 3 });
    expect(all.map(({ id }) => id)[2]).toBe('a');
    await fold(quarantine, [event('a', 'odd shape', 12)]);
    expect(await open()).toEqual(['a', 'chain.blocks:3:17', 'b']);
    expect(await quarantineEntry(pool, schemaOf(quarantine), 'a')).toMatchObject({
      quarantined_at: 12,
      last_tried_at: 12,
    });
  });

  test('keeps the time of an open entry when a retry fails, and takes its reason', async () => {
    await fold(quarantine, [event('b', 'another shape', 20)]);
    expect(await quarantineEntry(pool, schemaOf(quarantine), 'b')).toMatchObject({
      reason: 'another shape',
      quarantined_at: 2,
      last_tried_at: 20,
    });
    expect(await open()).toEqual(['a', 'chain.blocks:3:17', 'b']);
  });

  test('keeps an event skipped that is quarantined again, and opens a message', async () => {
    const message = 'chain.blocks:3:17';
    await fold(quarantine, [resolved('b', 'skipped', 30), resolved(message, 'skipped', 30)]);
    expect(await open()).toEqual(['a']);
    await fold(quarantine, [event('b', 'a third shape', 40), unreadable(message, 40)]);
    expect(await open()).toEqual([message, 'a']);
    expect(await quarantineEntry(pool, schemaOf(quarantine), 'b')).toMatchObject({
      reason: 'a third shape',
      quarantined_at: 2,
      last_tried_at: 40,
      resolution: 'skipped',
      resolved_at: 30,
    });
  });
});
