import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { z } from 'zod';

import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { chainCompleteness } from '../completeness.ts';
import { cpuOfEndedChildren, watchProcesses } from '../processes.ts';
import { follow, mixedChain } from './backfill.ts';

const run = promisify(execFile);
/** The fields of `tds rebuild --json` that the case uses. */
const reports = z.array(
  z.object({
    messages: z.number(),
    isSwapped: z.boolean(),
    heldMs: z.number().nullable(),
    readMs: z.number(),
    tables: z.array(z.object({ table: z.string(), rows: z.number(), differing: z.array(z.unknown()) })),
  }),
);

export const rebuild: BenchCase = {
  name: 'rebuild',
  summary: '`tds rebuild transfers account-ledger` from Kafka, next to a running service',
  async run(world, { transfers, perBlock }) {
    const { truth, settings } = await mixedChain(world, transfers, perBlock);
    world.say(`indexing ${truth.transfers} transfers first`);
    const { service, dataDir } = await world.service('rebuild', settings);
    const client = world.client(service.baseUrl, { 'api-key': service.demo.api_key });
    await follow(world, client, truth.transfers, { began: Date.now(), root: service.pid });

    world.say('rebuilding');
    const watched = watchProcesses({ ...service.pids(), supervisor: service.pid });
    const cpuBefore = cpuOfEndedChildren();
    const began = performance.now();
    const { stdout } = await run(
      process.execPath,
      ['infra/bin/tds.ts', 'rebuild', 'transfers', 'account-ledger', '--json'],
      { env: { ...process.env, DATA_DIR: dataDir }, maxBuffer: 64_000_000 },
    );
    const seconds = (performance.now() - began) / 1000;
    const cpu = [
      ['tds rebuild', cpuOfEndedChildren() - cpuBefore] as const,
      ...watched.end().map(({ name, cpuSeconds }) => [name, cpuSeconds] as const),
    ];
    const [report] = reports.parse(JSON.parse(stdout));
    if (report === undefined) throw new Error('no report of a rebuild');
    const readSeconds = report.readMs / 1000;
    const rows = report.tables.reduce((sum, one) => sum + one.rows, 0);
    const stores = await world.stores(dataDir);
    return {
      figures: [
        { name: 'transfers', value: truth.transfers, unit: '' },
        { name: 'messages', value: report.messages, unit: '' },
        { name: 'from the first message to the last row', value: readSeconds, unit: 's' },
        { name: 'rate', value: truth.transfers / readSeconds, unit: 'transfers/s', want: wanted.rebuildRate },
        { name: 'rows written', value: rows / readSeconds, unit: 'rows/s' },
        { name: 'whole command, comparison and swap included', value: seconds, unit: 's' },
        { name: 'writers held for the swap', value: report.heldMs ?? Number.NaN, unit: 'ms' },
      ],
      tables: [
        {
          title: 'CPU during the whole command',
          columns: ['process', 's', 'share of two cores %', 'µs a transfer'],
          rows: cpu.map(([name, used]) => [
            name,
            used,
            (50 * used) / seconds,
            (1e6 * used) / truth.transfers,
          ]),
        },
      ],
      completeness: [
        {
          what: 'ranges in which the rebuilt tables differ from those that were served',
          expected: 0,
          found: report.tables.reduce((sum, { differing }) => sum + differing.length, 0),
        },
        { what: 'swapped', expected: 1, found: report.isSwapped ? 1 : 0 },
        ...(await chainCompleteness(stores, truth)),
      ],
    };
  },
};
