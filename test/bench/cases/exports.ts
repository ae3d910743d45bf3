import { createHash } from 'node:crypto';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { get } from 'node:http';
import { text } from 'node:stream/consumers';

import { wanted } from '../case.ts';
import type { BenchCase, Figure } from '../case.ts';
import type { Client } from '../client.ts';
import { fill, untilMerged } from '../fill.ts';
import { latency, median, randomNumbers } from '../measure.ts';
import { memoryOf } from '../processes.ts';
import { createSynthetic } from '../synthetic.ts';
import type { Probe, Synthetic } from '../synthetic.ts';

/** Above the simulated node's heights, to avoid collisions. */
const FIRST_HEIGHT = 102_400;
const ROWS_PER_BLOCK = 500;

/** Pages read alone, and beside exports. */
const PAGES = 1800;
/** Each is some seconds long: beside the beginning of an export pages take longer than beside the rest of it. */
const ROUNDS = 2;
const PROBES = 200;

const files = [
  { format: 'csv', want: wanted.exportCsvRate },
  { format: 'parquet', want: wanted.exportParquetRate },
  { format: 'ndjson', want: undefined },
  { format: 'arrow', want: undefined },
] as const;

export const exports: BenchCase = {
  name: 'exports',
  summary:
    'export of all transfers of a range, and of a token, in each format; pages of accounts beside an export',
  async run(world, { rows }) {
    const chain = await world.chain({ head: 3, perBlock: 20 });
    const { service, dataDir } = await world.service('exports', {
      STARKNET_RPC_URL: chain.url,
      INDEX_FROM: '0',
    });
    const stores = await world.stores(dataDir);
    const blocks = Math.ceil(rows / ROWS_PER_BLOCK);
    const synthetic = createSynthetic({ perBlock: ROWS_PER_BLOCK, blocks, probes: PROBES });
    world.say(`filling the tables with ${blocks * ROWS_PER_BLOCK} transfers`);
    await fill(stores, synthetic, { first: FIRST_HEIGHT, count: blocks }, world.say);
    await untilMerged(stores);

    const api = service.pids()['api'] ?? 0;
    const range = `from_block=${FIRST_HEIGHT}&to_block=${FIRST_HEIGHT + blocks}`;
    const all = synthetic.made.transfers;
    const figures: Figure[] = [];
    const completeness = [];
    const idle = memoryOf(api, 'VmHWM');
    const tenth = `from_block=${FIRST_HEIGHT}&to_block=${FIRST_HEIGHT + Math.floor(blocks / 10)}`;
    for (const { format } of files)
      await download(`${service.baseUrl}/api/export/transfers.${format}?${tenth}`, service.demo.api_key);
    const afterTenth = memoryOf(api, 'VmHWM');
    for (const { format, want } of files) {
      for (const [what, query, transfers] of [
        ['a range', range, all],
        ['a token', `token=${synthetic.half.felt}&${range}`, synthetic.half.transfers],
      ] as const) {
        world.say(`${format} of ${what}`);
        const url = `${service.baseUrl}/api/export/transfers.${format}?${query}`;
        const file = await download(url, service.demo.api_key);
        figures.push({
          name: `${format}, ${transfers.toLocaleString('en-US')} transfers of ${what}`,
          value: transfers / file.seconds,
          unit: '/s',
          ...(want === undefined || query !== range ? {} : { want }),
        });
        completeness.push(
          { what: `${format} of ${what}, X-Export-Rows`, expected: transfers, found: file.rows },
          { what: `${format} of ${what}, SHA-256 differs`, expected: 0, found: file.isWhole ? 0 : 1 },
        );
      }
    }
    const afterAll = memoryOf(api, 'VmHWM');
    figures.push(
      { name: 'peak memory of the api before exports', value: idle, unit: 'MiB' },
      { name: 'after exports of a tenth', value: afterTenth, unit: 'MiB' },
      { name: 'after exports of all', value: afterAll, unit: 'MiB' },
      {
        name: 'peak memory after exports of all to that of a tenth',
        value: afterAll / afterTenth,
        unit: '×',
        want: wanted.exportMemory,
      },
    );
    world.say('pages beside an export');
    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    const url = `${service.baseUrl}/api/export/transfers.csv?${range}`;
    figures.push(...(await besideExport(client, synthetic, () => discard(url, service.demo.api_key))));
    return {
      figures,
      completeness,
      notes: ['Rates run from the request to the last byte, without a content coding.'],
    };
  },
};

/** Latency of pages of accounts, alone and while exports follow one another, in turn. */
async function besideExport(
  client: Client,
  { accounts }: Synthetic,
  download: () => Promise<unknown>,
): Promise<Figure[]> {
  const random = randomNumbers(31);
  const one = (): Probe | undefined => accounts[Math.floor(random() * accounts.length)];
  let questions = 0;
  const readPages = async (count: number, into: number[]): Promise<void> => {
    for (let index = 0; index < count; index += 1) {
      const began = performance.now();
      // An unknown parameter gives another cache key for the same answer, so the answer is not cached.
      const path = `/api/transfers/?account=${one()?.felt}&limit=50&question=${(questions += 1)}`;
      const { status } = await client.get(path);
      if (status !== 200) throw new Error(`${path}: ${status}`);
      into.push(performance.now() - began);
    }
  };
  await readPages(PAGES / ROUNDS, []);
  const [alone, beside]: [number[], number[]] = [[], []];
  for (let round = 0; round < ROUNDS; round += 1) {
    await readPages(PAGES / ROUNDS, alone);
    let isDone = false;
    const exporting = (async () => {
      while (!isDone) await download();
    })();
    await readPages(PAGES / ROUNDS, beside);
    isDone = true;
    await exporting;
  }
  return [
    ...latency('page of an account, alone', alone),
    ...latency('page of an account beside an export', beside),
    {
      name: 'median beside an export to median alone',
      value: median(beside) / median(alone),
      unit: '×',
      want: wanted.pageBesideExport,
    },
  ];
}

/** Reads a file to its end in a process of its own, which does not delay other calls of the bench. */
async function discard(url: string, key: string): Promise<void> {
  const read = `for await (const _ of (await fetch(process.argv[1], { headers: { 'api-key': process.argv[2] } })).body);`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', read, url, key], { stdio: 'ignore' });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`${url} could not be read`);
}

/** Reads a file to its end; only its hash is kept. */
function download(url: string, key: string): Promise<{ seconds: number; rows: number; isWhole: boolean }> {
  const began = performance.now();
  const headers = { 'api-key': key, te: 'trailers' };
  return new Promise((resolve, reject) => {
    const request = get(url, { headers, agent: false }, (response) => {
      if (response.statusCode !== 200) {
        text(response).then((body) => reject(new Error(`${url}: ${response.statusCode} ${body}`)), reject);
        return;
      }
      const hash = createHash('sha256');
      response.on('data', (chunk: Buffer) => hash.update(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const { 'x-export-rows': rows, 'x-export-sha256': sha256 } = response.trailers;
        const seconds = (performance.now() - began) / 1000;
        resolve({ seconds, rows: Number(rows), isWhole: sha256 === hash.digest('hex') });
      });
    });
    request.on('error', reject);
  });
}
