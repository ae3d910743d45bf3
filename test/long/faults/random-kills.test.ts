import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';
import { z } from 'zod';

import { freePort } from '../../../infra/embedded/ports.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import type { SimulatedNode } from '../../support/starknet/node.ts';
import { inspector } from '../../support/faults/inspect.ts';
import { allTransfers, eventually, startService } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { createRandom } from '../../support/random.ts';
import type { Random } from '../../support/random.ts';
import { servedRow, trueRow } from '../../support/truth.ts';

/**
 * `kill -9` of roles and embedded servers at random, while history is indexed and the chain grows and forks. Their
 * supervisor brings them back; in the end every table says what the chain meant. `FAULT_KILLS` is how many (200 takes
 * about half an hour), `FAULT_SEED` which; the seed decides targets and events, not the moments.
 */
const kills = Number(process.env['FAULT_KILLS'] ?? 8);
const seed = Number(process.env['FAULT_SEED'] ?? Date.now() % 1_000_000);

const roles = ['ingest', 'project', 'observe', 'api'];
const servers = ['kafka', 'clickhouse', 'postgres', 'redis'];
/** A server that ends more often without a healthy minute is taken for broken by whoever keeps it running. */
const KILLS_OF_A_SERVER = 6;
const HEALTHY_MS = 65_000;

const runFile = z.object({ env: z.record(z.string(), z.string()) });
const chainPlace = z.object({ head: z.number(), l1: z.number() });

test(
  `${kills} kills at random (FAULT_SEED=${seed})`,
  { timeout: 300_000 + kills * 15_000 },
  async ({ annotate }) => {
    await annotate(`FAULT_SEED=${seed}`);
    const random = createRandom(seed);
    const dataDir = mkdtempSync(join(tmpdir(), 'tds-kills-'));
    const node = await createSimulatedNode({
      seed: `kills ${seed}`,
      manual: true,
      initialHead: 1500,
      transfersPerBlock: 8,
      malformed: 0.02,
      l1: null,
    });
    node.control({ command: 'setL1', height: 1400 });
    let service: RunningService | null = null;
    try {
      service = await startService(dataDir, {
        STARKNET_RPC_URL: node.url,
        INDEX_FROM: '0',
        BACKFILL_CHUNK_BLOCKS: '400',
        // History lasts for most of the time: it is fetched slowly.
        RPC_CONCURRENCY: '2',
        PORT: String(await freePort()),
        LOG_LEVEL: 'warn',
      });
      node.control({ command: 'fault', fault: { kind: 'latency', ms: Math.min(60, kills * 3) } });
      const killed = await killAtRandom(service, node, random);
      node.control({ command: 'clearFaults' });
      expect(killed).toHaveLength(kills);

      // The end of all of it: everything runs, and everything is right.
      const { env } = runFile.parse(JSON.parse(readFileSync(join(dataDir, 'run.json'), 'utf8')));
      const inspected = inspector(node, env);
      try {
        await eventually(
          async () => expect(await inspected.isSettled().catch(String)).toBe(true),
          180_000,
          500,
        );
        expect(await inspected.differences(), `seed ${seed}: ${killed.join()}`).toEqual([]);
      } finally {
        await inspected.close();
      }
      const running = service;
      await eventually(async () => expect((await running.get('/readyz')).status).toBe(200));
      for (const height of [3, 700, node.ledger.head()]) {
        const { rows, count } = await allTransfers(running, `block=${height}&order=asc`);
        expect(rows.map(servedRow)).toEqual(node.transfersAt(height).map(trueRow));
        expect(count).toBe(rows.length);
      }
    } catch (error) {
      if (service !== null) process.stderr.write(`seed ${seed}\n${service.printed().slice(-4000)}\n`);
      throw error;
    } finally {
      await service?.stop();
      await node.close();
      rmSync(dataDir, { recursive: true, force: true });
    }
  },
);

/** Gives the names of those that were killed, in order. */
async function killAtRandom(service: RunningService, node: SimulatedNode, random: Random): Promise<string[]> {
  const killed: string[] = [];
  const ofServer = new Map<string, { times: number; last: number }>();
  const mayDie = (name: string): boolean => {
    const { times = 0, last = 0 } = ofServer.get(name) ?? {};
    return times < KILLS_OF_A_SERVER || Date.now() - last > HEALTHY_MS;
  };
  const events = [
    () => node.control({ command: 'advance', blocks: 1 + random.below(5) }),
    () => node.control({ command: 'advance', blocks: 1 }),
    () => node.control({ command: 'reorg', depth: 1 + random.below(4) }),
    () => {
      const depth = 1 + random.below(60);
      const length = Math.max(1, depth + random.below(5) - 2);
      const events = random.pick(['fewer', 'same', 'more'] as const);
      node.control({ command: 'reorg', depth, length, events });
    },
    () => {
      const { head, l1 } = chainPlace.parse(node.control({ command: 'pause' }));
      if (head - l1 > 90) node.control({ command: 'setL1', height: l1 + random.below(20) });
    },
  ];
  while (killed.length < kills) {
    await new Promise((resolve) => setTimeout(resolve, 200 + random.below(2300)));
    random.pick(events)();
    const name = random.pick([...roles, ...roles, ...servers]);
    const pid = service.pids()[name] ?? 0;
    if (pid === 0 || !mayDie(name)) continue;
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      continue; // it is dead already, and not yet back
    }
    if (servers.includes(name)) {
      const { times = 0, last = 0 } = ofServer.get(name) ?? {};
      const again = Date.now() - last > HEALTHY_MS ? 1 : times + 1;
      ofServer.set(name, { times: again, last: Date.now() });
    }
    killed.push(name);
  }
  return killed;
}
