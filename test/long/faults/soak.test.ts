import { mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import { topics } from '../../../schemas/topics.ts';
import { inspector } from '../../support/faults/inspect.ts';
import type { Inspector } from '../../support/faults/inspect.ts';
import { eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';

/**
 * The service at twice the live rate (a block a second, a reorg now and then, clients that read) for `SOAK_MINUTES`:
 * memory, file handles, parts and lag do not grow. Halves of one run are compared, after a warm-up; no time is asserted.
 * An hour by hand: `SOAK_MINUTES=60 npx vitest run --config test/vitest.config.ts --project long soak`.
 */
const minutes = Number(process.env['SOAK_MINUTES'] ?? 2);
const SAMPLE_MS = 2000;

const runFile = z.object({ env: z.record(z.string(), z.string()) });
const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';

/** What is measured → its value at one moment. */
type Sample = ReadonlyMap<string, number>;

test(
  `${minutes} minutes at twice the live rate`,
  { timeout: (minutes + 6) * 60_000 },
  async ({ annotate }) => {
    const dataDir = mkdtempSync(join(tmpdir(), 'tds-soak-'));
    const node = await createSimulatedNode({
      seed: 'soak',
      initialHead: 200,
      blockSeconds: 1,
      transfersPerBlock: 60,
      malformed: 0.01,
      l1: { lag: 60, step: 5 },
      reorgs: { every: 25, maxDepth: 5 },
    });
    let service: RunningService | null = null;
    try {
      const port = String(await freePort());
      service = await startService(dataDir, {
        STARKNET_RPC_URL: node.url,
        STARKNET_WS_URL: node.url.replace('http', 'ws'),
        INDEX_FROM: '0',
        PORT: port,
      });
      const { env } = runFile.parse(JSON.parse(readFileSync(join(dataDir, 'run.json'), 'utf8')));
      const inspected = inspector(node, env);
      try {
        const began = Date.now();
        const samples: Sample[] = [];
        const pids = JSON.stringify(service.pids());
        while (Date.now() - began < minutes * 60_000) {
          const next = Date.now() + SAMPLE_MS;
          await service.get(`/api/transfers/?token=${STRK}&limit=50`);
          await service.get('/api/indexer/progress/');
          samples.push(await sample(service, inspected));
          await new Promise((resolve) => setTimeout(resolve, Math.max(0, next - Date.now())));
        }
        // Nothing ended and was started again.
        expect(JSON.stringify(service.pids())).toBe(pids);
        const figures = compareHalves(samples);
        await annotate(figures.map(({ text }) => text).join('\n'));
        expect(figures.filter(({ grows }) => grows).map(({ text }) => text)).toEqual([]);

        node.control({ command: 'pause' });
        await eventually(async () => expect(await inspected.isSettled()).toBe(true));
        expect(await inspected.differences()).toEqual([]);
      } finally {
        await inspected.close();
      }
    } finally {
      await service?.stop();
      await node.close();
      rmSync(dataDir, { recursive: true, force: true });
    }
  },
);

async function sample(service: RunningService, { clickhouse, kafka, pool }: Inspector): Promise<Sample> {
  const found = new Map<string, number>();
  for (const [name, pid] of Object.entries(service.pids())) {
    const rss = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    found.set(`memory of ${name}, MB`, Number(rss) / 1024);
    found.set(`handles of ${name}`, openHandles(pid));
    found.set(`threads of ${name}`, readdirSync(`/proc/${pid}/task`).length);
  }
  const [parts] = await clickhouse.rows({
    name: 'soak.parts',
    sql: 'SELECT count() AS n FROM system.parts WHERE active AND database = currentDatabase()',
    row: z.object({ n: z.coerce.number() }),
  });
  found.set('parts', parts?.n ?? 0);
  const { rows } = await pool.query<{ partition: number; next: number }>(
    "SELECT partition, min(next_offset) AS next FROM tds.projection_checkpoints WHERE topic = 'chain.blocks' GROUP BY partition",
  );
  const heads = new Map(
    (await kafka.offsets(topics.chainBlocks)).map((place) => [place.partition, place.high]),
  );
  const behind = rows.map(({ partition, next }) => (heads.get(partition) ?? 0) - next);
  found.set('messages behind', Math.max(0, ...behind));
  return found;
}

/** Without those on the process's own statistics: ClickHouse keeps three for each thread that it ever had work for. */
function openHandles(pid: number): number {
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).filter((handle) => {
    try {
      return !readlinkSync(join(folder, handle)).startsWith('/proc/');
    } catch {
      return false; // closed since
    }
  }).length;
}

/** How much of the second half may be above the first: a share of it, and so much besides. */
const slack: readonly [prefix: string, share: number, besides: number][] = [
  ['memory', 0.1, 30],
  ['handles', 0.1, 8],
  // As many as ever worked at once, and no more.
  ['threads', 0.5, 20],
  ['parts', 0.3, 15],
  ['messages', 1, 10],
];

/** The means of both halves of what is left when the first third is left out. */
function compareHalves(samples: readonly Sample[]): { text: string; grows: boolean }[] {
  const warm = samples.slice(Math.floor(samples.length / 3));
  const half = Math.floor(warm.length / 2);
  const names = [...(samples[0]?.keys() ?? [])];
  return names.map((name) => {
    const mean = (some: readonly Sample[]): number =>
      some.reduce((sum, one) => sum + (one.get(name) ?? 0), 0) / Math.max(1, some.length);
    const [first, second] = [mean(warm.slice(0, half)), mean(warm.slice(half))];
    const [, share, besides] = slack.find(([prefix]) => name.startsWith(prefix)) ?? ['', 0, 0];
    return {
      text: `${name}: ${first.toFixed(1)}, then ${second.toFixed(1)}`,
      grows: second > first * (1 + share) + besides,
    };
  });
}
