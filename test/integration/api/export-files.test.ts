import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { buildExportFiles } from '../../../infra/bin/operator/export-files.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { openObjectStore } from '../../../infra/object-store/store.ts';
import { openBuild } from '../../../projections/engine/builds.ts';
import { prices } from '../../../projections/prices/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { exportManifest } from '../../../schemas/api/exports.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { begin, fileOf, finish, firstDifference, formats, rowsOf } from '../../support/export-client.ts';
import { python, pythonLacks } from '../../support/python.ts';
import { createRandom } from '../../support/random.ts';
import { startSimulatedS3 } from '../../support/s3.ts';
import { COIN, NFT, writeSmallChain } from '../../support/small-chain.ts';
import { tds } from '../../support/tds.ts';
import type { CommandResult } from '../../support/tds.ts';
import { aTransfer, randomBlock, randomWorld } from '../../support/transfer-world.ts';

/** Files of `tds export build`, and exports and files as libraries of Python read them, where these are installed. */

const README = new URL('../../../README.md', import.meta.url);
const [ACCOUNT = COIN] = randomWorld.accounts;
const random = createRandom(20_261_127);

let world: ApiWorld;
let headers: Record<string, string>;
let folder: string;

const build = async (to: string, ...options: string[]): Promise<CommandResult> =>
  await tds(world.env, 'export', 'build', '--to', to, ...options);
const manifestOf = (of: string) =>
  exportManifest.parse(JSON.parse(readFileSync(join(of, 'manifest.json'), 'utf8')));
const writeManifest = (of: string, manifest: unknown): void =>
  writeFileSync(join(of, 'manifest.json'), JSON.stringify(manifest));

/** A described coin and an NFT beside random transfers. Heights up to 11 are accepted on L1. */
const blocks = Array.from({ length: 13 }, (_, height) => {
  const block = randomBlock(random, height, 20);
  const about = { from: ACCOUNT, to: ACCOUNT, txHash: COIN };
  const coin = aTransfer({ ...about, token: COIN, position: 900, amount: BigInt(random.below(2 ** 31)) });
  const nft = aTransfer({ ...about, token: NFT, position: 901, kind: 'erc721', tokenId: (1n << 256n) - 1n });
  return { ...block, transfers: [...block.transfers, coin, nft] };
});

beforeAll(async () => {
  world = await apiWorld();
  const { apiKey } = await writeSmallChain(world, blocks);
  headers = { 'api-key': apiKey };
  folder = mkdtempSync(join(tmpdir(), 'tds-export-'));
  expect((await build(folder, '--heights', '5')).code).toBe(0);
});
afterAll(async () => {
  rmSync(folder, { recursive: true, force: true });
  await world?.close();
});

test('one process writes files at a time', async () => {
  const s3 = await startSimulatedS3();
  const resume = s3.pause();
  try {
    const env = { ...world.env, ...s3.env };
    const first = tds(env, 'export', 'build', '--to', 's3://bucket/files', '--heights', '5');
    await vi.waitFor(() => expect(s3.openRequests()).toBe(1), { timeout: 30_000 });
    const second = await build(join(folder, 'second'), '--heights', '5');
    expect([second.code, second.stdout]).toEqual([1, '']);
    expect(second.stderr).toContain('Another process is writing files');
    resume();
    expect(await first).toMatchObject({ code: 0, stdout: expect.stringContaining('2 files written.') });
    const again = await build(join(folder, 'second'), '--heights', '5');
    expect(again.stdout).toContain('2 files written.');
  } finally {
    resume();
    await s3.close();
  }
});

test('a build that has lost its lock replaces no file', async () => {
  const { env, pool } = world;
  const clickhouse = createClickHouse(env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const to = join(folder, 'lost');
  const { signal } = new AbortController();
  const reading = { pool, clickhouse, servedBuilds: () => servedBuilds(pool), signal };
  const assertHeld = async (): Promise<void> => {
    throw new Error('lost');
  };
  try {
    const target = { store: await openObjectStore(to), heights: 5, assertHeld };
    await expect(buildExportFiles(reading, target, () => {})).rejects.toThrow('lost');
    expect(readdirSync(join(to, 'files'))).toEqual([]);
  } finally {
    await clickhouse.close();
  }
});

test('a target that is no folder is reported without a stack', async () => {
  const answer = await build(join(folder, 'manifest.json'), '--heights', '5');
  expect([answer.code, answer.stdout]).toEqual([1, '']);
  expect(answer.stderr).toMatch(/^ENOTDIR: .*manifest\.json'\n$/);
});

test('a file has 100,000 heights by default', async () => {
  const to = join(folder, 'empty');
  mkdirSync(to);
  writeManifest(to, { heights: 100_000, files: [] });
  expect(await build(to)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('No new range of 100000 heights is complete'),
  });
  const other = await build(folder);
  expect([other.code, other.stderr]).toEqual([
    1,
    expect.stringContaining('The target holds files of 5 heights each: use --heights 5'),
  ]);
});

test('files hold the prices of their hours however many they are', async () => {
  const owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const { ohlc_hourly: hourly } = (await openBuild(world.pool, owner, prices)).names;
  const setHour = async (seq: number, isDeleted: 0 | 1): Promise<void> =>
    await owner.command(`INSERT INTO ${hourly} (token, hour, points, seq, is_deleted)
      SELECT unhex('${COIN.slice(2)}'), ${Math.floor((blocks[0]?.timestamp ?? 0) / 3600)}, 4000000000, ${seq}, ${isDeleted}`);
  try {
    await setHour(1, 0);
    const { status } = await fetch(`${world.url}/api/export/transfers.csv?token=${COIN}`, { headers });
    expect(status).toBe(400);
    expect(await build(join(folder, 'priced'), '--heights', '5')).toMatchObject({ code: 0, stderr: '' });
  } finally {
    await setHour(2, 1);
    await owner.close();
  }
});

test('a file is served once the manifest lists it', async () => {
  const to = join(folder, 'unlisted');
  expect((await build(to, '--heights', '4')).code).toBe(0);
  const whole = manifestOf(to);
  const [, last] = whole.files;
  if (last === undefined) throw new Error('no second file');
  writeManifest(to, { ...whole, files: whole.files.filter(({ url }) => url !== last.url) });
  // As a build leaves it that was killed before it wrote the manifest.
  const between = 'files/transfers-100-103.parquet';
  copyFileSync(join(to, last.url), join(to, between));
  const serving = await world.anotherApi({ env: { EXPORT_FILES: to } });
  const status = async (url: string, method = 'GET') =>
    (await serving.call(method, `/api/export/${url}`, { headers })).status;
  try {
    expect(await status(whole.files[0]?.url ?? '')).toBe(200);
    for (const url of [last.url, between])
      expect([await status(url), await status(url, 'HEAD')]).toEqual([404, 404]);
    writeManifest(to, whole);
    expect([await status(last.url), await status(between)]).toEqual([200, 404]);
  } finally {
    await serving.close();
  }
});

/** The lines of a language in the README that read a file by URL, for another address and key. */
function shownIn(language: string, { url, key }: { readonly url: string; readonly key: string }): string {
  const shown = [...readFileSync(README, 'utf8').matchAll(/```(\w+)\n([^`]+)```/g)];
  const [, , text] = shown.find(([, of, lines]) => of === language && lines?.includes('/api/export/')) ?? [];
  if (text === undefined) throw new Error(`the README shows no ${language}`);
  return text
    .replaceAll(/http:[^'"]+\.parquet/g, url)
    .replaceAll('…', key)
    .replaceAll('os.environ["KEY"]', JSON.stringify(key));
}

const LIBRARIES = ['pandas', 'polars'] as const;

test.for([...LIBRARIES, 'duckdb'])(
  'a file is read by URL as the README shows, with %s',
  async (library, ctx) => {
    const lacks = await (library === 'duckdb'
      ? pythonLacks('duckdb_httpfs', 'duckdb and its extension httpfs')
      : pythonLacks(library));
    if (lacks !== null) return ctx.skip(lacks);
    const serving = await world.anotherApi({ env: { EXPORT_FILES: folder } });
    try {
      const [, file] = manifestOf(folder).files;
      if (file === undefined) throw new Error('no second file');
      const asked = { url: `${serving.url}/api/export/${file.url}`, key: headers['api-key'] ?? '' };
      const others = LIBRARIES.filter((name) => name !== library);
      const lines = shownIn('python', asked)
        .split('\n')
        .filter((line) => !others.some((name) => line.includes(name)));
      const program =
        library === 'duckdb'
          ? `import duckdb_httpfs; duckdb_httpfs.print_results(${JSON.stringify(shownIn('sql', asked))})`
          : ['import exported_rows', ...lines, 'exported_rows.print_rows(frame)'].join('\n');
      const printed: unknown = JSON.parse(await python('-c', program));
      if (library === 'duckdb') expect(printed).toEqual([file.rows]);
      else {
        const { rows } = await rowsOf('parquet', readFileSync(join(folder, file.url)));
        expect(firstDifference(printed as typeof rows, rows)).toBe(null);
      }
    } finally {
      await serving.close();
    }
    return undefined;
  },
);

test.for([...LIBRARIES, 'pyarrow'])('%s reads the rows of an export', async (library, ctx) => {
  const lacks = await pythonLacks(library);
  if (lacks !== null) return ctx.skip(lacks);
  const to = mkdtempSync(join(tmpdir(), 'tds-export-'));
  try {
    const wanted = new Map<string, Awaited<ReturnType<typeof rowsOf>>['rows']>();
    for (const format of formats) {
      const url = `${world.url}/api/export/transfers.${format}?from_block=0&to_block=12`;
      const file = fileOf(await finish(await begin(url, headers)));
      writeFileSync(join(to, format), file);
      const { rows } = await rowsOf(format, file);
      expect(rows.length).toBeGreaterThan(250);
      wanted.set(format, rows);
    }
    const program = new URL('../../support/python/exported_rows.py', import.meta.url).pathname;
    const read: Record<string, never> = JSON.parse(await python(program, library, to));
    expect(Object.keys(read).length).toBeGreaterThan(1);
    for (const [format, rows] of Object.entries(read))
      expect(firstDifference(rows, wanted.get(format) ?? []), format).toBe(null);
  } finally {
    rmSync(to, { recursive: true, force: true });
  }
  return undefined;
});
