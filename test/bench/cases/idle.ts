import { sleep } from '../../../infra/lifecycle.ts';
import { pollUntil } from '../../../infra/retry.ts';
import type { RunningService } from '../../support/service.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { cpuOfTree, watchProcesses } from '../processes.ts';
import { totals } from './start.ts';

const HEAD = 300;
/** As many as in the simulated chain of `npm start`. */
const PER_BLOCK = 28;
const BLOCK_MS = 2000;
/** After the first blocks: compiled code, merges and the caches settle. */
const SETTLE_MS = 20_000;
const MEASURED_MS = 30_000;
const INDEXED_WITHIN_MS = 120_000;
const SIMULATED = ['prices', 'ipfs'];

export const idle: BenchCase = {
  name: 'idle',
  summary: 'CPU of the service while nobody asks: the chain at rest, then a block every 2 s',
  async run(world) {
    const chain = await world.chain({ head: HEAD, perBlock: PER_BLOCK });
    const { service } = await world.service('idle', { STARKNET_RPC_URL: chain.url, INDEX_FROM: '0' });
    const indexed = async (): Promise<{ expected: number; found: number }> => {
      const { transfers: expected } = await chain.truth();
      const isDone = (found: number): boolean => found === expected;
      const waiting = { everyMs: 500, withinMs: INDEXED_WITHIN_MS };
      return { expected, found: await pollUntil(async () => await totals(service), isDone, waiting) };
    };
    await indexed();
    await sleep(SETTLE_MS);
    world.say('measuring at rest');
    const atRest = await useWithin(service, sleep(MEASURED_MS));

    const grow = async (ms: number): Promise<void> => {
      for (let passed = 0; passed < ms; passed += BLOCK_MS) {
        await chain.advance(1);
        await sleep(BLOCK_MS);
      }
    };
    await grow(SETTLE_MS);
    world.say('measuring with blocks');
    const growing = await useWithin(service, grow(MEASURED_MS));
    const names = [...new Set([...atRest.byName.keys(), ...growing.byName.keys()])];
    return {
      figures: [
        { name: 'CPU, the chain at rest', value: atRest.whole, unit: '% of a core', want: wanted.idleCpu },
        { name: 'CPU, a block every 2 s', value: growing.whole, unit: '% of a core', want: wanted.idleCpu },
      ],
      completeness: [{ what: 'transfers', ...(await indexed()) }],
      tables: [
        {
          title: `CPU over ${MEASURED_MS / 1000} s, % of a core`,
          columns: ['process', 'at rest', 'a block every 2 s'],
          rows: names
            .map((name): [string, number, number] => [
              name,
              atRest.byName.get(name) ?? 0,
              growing.byName.get(name) ?? 0,
            ])
            .toSorted(([, , a], [, , b]) => b - a),
        },
      ],
      notes: ['Of the service and its stores; the simulated node, prices and gateway are not counted.'],
    };
  },
};

/** CPU of the service and its stores while something lasts, in % of a core. */
async function useWithin(
  service: RunningService,
  lasting: Promise<unknown>,
): Promise<{ whole: number; byName: ReadonlyMap<string, number> }> {
  const watched = watchProcesses({ ...service.pids(), supervisor: service.pid });
  const tree = cpuOfTree(service.pid);
  const began = performance.now();
  await lasting;
  const percent = 100_000 / (performance.now() - began);
  const whole = cpuOfTree(service.pid) - tree;
  const uses = watched.end();
  const simulated = uses.filter(({ name }) => SIMULATED.includes(name));
  const own = uses.filter((use) => !simulated.includes(use));
  return {
    whole: percent * (whole - simulated.reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0)),
    byName: new Map(own.map(({ name, cpuSeconds }) => [name, percent * cpuSeconds])),
  };
}
