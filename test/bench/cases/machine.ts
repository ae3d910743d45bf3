import { closeSync, fsyncSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';

import { chainProjections } from '../../../projections/index.ts';
import { eventCommitment } from '../../../schemas/commitment/events.ts';
import type { BenchCase, Figure } from '../case.ts';
import { latency, median, timed } from '../measure.ts';
import { blocksOf, fetchAnswers } from '../quick/parts.ts';
import { cpuOf } from '../quick/reference.ts';
import type { Stores } from '../stores.ts';
import { follow, mixedChain } from './backfill.ts';

const TRANSFERS = 50_000;
const PARSE_ROUNDS = 7;
const INSERT_ROUNDS = 5;
const PIECE = Buffer.alloc(4 * 1024 * 1024, 'x');
const PIECES = 64;
const SYNCS = 100;
const READS = 300;

export const machineLimits: BenchCase = {
  name: 'machine',
  summary: 'what the machine itself can do: JSON parser, ClickHouse without the service, disk',
  async run(world, { perBlock }) {
    const { chain, truth, settings } = await mixedChain(world, TRANSFERS, perBlock);
    const heights = Array.from({ length: 100 }, (_, index) => 10 + index);
    const answers = await fetchAnswers(chain.url, heights);
    const { transfers } = await chain.truth({ from: 10, to: 109 });
    const parsing = await parserFigures(answers, transfers);
    const hashing = await hashFigures(answers);
    const disk = diskFigures(world.dir);

    const { service, dataDir } = await world.service('machine', settings);
    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    await follow(world, client, truth.transfers, { began: Date.now(), root: service.pid });
    const stores = await world.stores(dataDir);
    world.say('inserting into copies of the tables');
    const inserting = await insertFigures(stores, truth.transfers);
    const [account = ''] = Object.keys(truth.byAccount).slice(50);
    const page = `SELECT count() AS n FROM (SELECT * FROM {{account_feed}} WHERE account = unhex('${account.slice(2)}') LIMIT 51)`;
    const read = async (sql: string): Promise<number[]> =>
      (await timed(READS, 1, async () => void (await stores.number(sql)))).samples;
    return {
      figures: [
        ...parsing,
        ...hashing,
        ...inserting,
        ...latency('ClickHouse: SELECT 1', await read('SELECT 1 AS n')),
        ...latency('ClickHouse: 51 rows by primary key', await read(page)),
        ...disk,
      ],
      completeness: [],
      notes: [
        `Medians of ${PARSE_ROUNDS} and ${INSERT_ROUNDS} rounds. Inserts: INSERT … SELECT from memory into an empty copy of each table of chain.blocks, one after the other, without decoding, encoding, HTTP and merges that follow. The service is idle beside them.`,
      ],
    };
  },
};

async function parserFigures(answers: readonly string[], transfers: number): Promise<Figure[]> {
  const bytes = answers.reduce((sum, text) => sum + text.length, 0);
  const rounds: number[] = [];
  for (let round = 0; round < PARSE_ROUNDS; round += 1) {
    const used = await cpuOf(() => {
      for (const text of answers) JSON.parse(text);
    });
    rounds.push(used / 1000);
  }
  const seconds = median(rounds);
  return [
    { name: 'JSON.parse of blocks', value: bytes / 1e6 / seconds, unit: 'MB for a second of CPU' },
    { name: 'the same', value: transfers / seconds, unit: 'transfers for a second of CPU' },
  ];
}

/** Event commitments, as the ingester compares them. */
async function hashFigures(answers: readonly string[]): Promise<Figure[]> {
  const bodies = blocksOf(answers).bodies();
  const events = bodies
    .flatMap(({ transactions }) => transactions)
    .reduce((sum, transaction) => sum + transaction.events.length, 0);
  const rounds: number[] = [];
  for (let round = 0; round < PARSE_ROUNDS; round += 1)
    rounds.push(
      await cpuOf(() => {
        for (const { transactions } of bodies) eventCommitment(transactions);
      }),
    );
  return [
    {
      name: 'event commitments',
      value: events / (median(rounds) / 1000),
      unit: 'events for a second of CPU',
    },
  ];
}

async function insertFigures({ clickhouse, served, number }: Stores, transfers: number): Promise<Figure[]> {
  let seconds = 0;
  let rows = 0;
  for (const name of chainProjections.flatMap(({ tables }) => Object.keys(tables))) {
    const table = served.table(name);
    // Not by `ddl`, which adds the settings of the service's own tables.
    await clickhouse.command(`CREATE TABLE bench_source ENGINE = Memory AS SELECT * FROM ${table}`);
    await clickhouse.command(`CREATE TABLE bench_copy AS ${table}`);
    const rounds: number[] = [];
    for (let round = 0; round < INSERT_ROUNDS; round += 1) {
      await clickhouse.ddl('TRUNCATE TABLE bench_copy');
      const began = performance.now();
      await clickhouse.command('INSERT INTO bench_copy SELECT * FROM bench_source');
      rounds.push((performance.now() - began) / 1000);
    }
    seconds += median(rounds);
    rows += await number('SELECT count() AS n FROM bench_source');
    await clickhouse.ddl('DROP TABLE bench_source');
    await clickhouse.ddl('DROP TABLE bench_copy');
  }
  return [
    {
      name: 'ClickHouse: rows inserted into the tables of chain.blocks',
      value: rows / seconds,
      unit: 'rows/s',
    },
    { name: 'the same', value: transfers / seconds, unit: 'transfers/s' },
  ];
}

function diskFigures(dir: string): Figure[] {
  const path = join(dir, 'disk-test');
  const file = openSync(path, 'w');
  const began = performance.now();
  for (let piece = 0; piece < PIECES; piece += 1) writeSync(file, PIECE);
  fsyncSync(file);
  const seconds = (performance.now() - began) / 1000;
  const syncs = Array.from({ length: SYNCS }, () => {
    const from = performance.now();
    writeSync(file, PIECE, 0, 4096);
    fsyncSync(file);
    return performance.now() - from;
  });
  closeSync(file);
  rmSync(path);
  return [
    { name: 'disk: written and synced', value: (PIECES * PIECE.length) / 1e6 / seconds, unit: 'MB/s' },
    ...latency('disk: 4 KiB written and synced', syncs),
  ];
}
