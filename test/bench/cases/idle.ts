import { sleep } from '../../../infra/lifecycle.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { cpuOfTree, watchProcesses } from '../processes.ts';
import { freshAnswer, totals } from './start.ts';

/** After the first blocks: compiled code, merges and the caches settle. */
const SETTLE_MS = 20_000;
const MEASURED_MS = 30_000;
const SIMULATED = ['starknet', 'prices', 'ipfs'];

export const idle: BenchCase = {
  name: 'idle',
  summary: 'CPU of the service with default settings while nobody asks, with a block every 2 s',
  async run(world) {
    const { service } = await world.service('idle');
    await freshAnswer(service);
    world.say(`waiting for ${SETTLE_MS / 1000} s`);
    await sleep(SETTLE_MS);
    const before = await totals(service);
    world.say(`measuring for ${MEASURED_MS / 1000} s`);
    const watched = watchProcesses({ ...service.pids(), supervisor: service.pid });
    const tree = cpuOfTree(service.pid);
    const began = performance.now();
    await sleep(MEASURED_MS);
    const seconds = (performance.now() - began) / 1000;
    const whole = cpuOfTree(service.pid) - tree;
    const uses = watched.end();
    const after = await totals(service);

    const percent = (cpuSeconds: number): number => (100 * cpuSeconds) / seconds;
    const simulated = uses
      .filter(({ name }) => SIMULATED.includes(name))
      .reduce((sum, { cpuSeconds }) => sum + cpuSeconds, 0);
    return {
      figures: [
        {
          name: 'CPU of the service and its stores',
          value: percent(whole - simulated),
          unit: '% of a core',
          want: wanted.idleCpu,
        },
        {
          name: 'CPU of the simulated node, prices and gateway',
          value: percent(simulated),
          unit: '% of a core',
        },
        { name: 'transfers indexed meanwhile', value: after - before, unit: '' },
      ],
      completeness: [],
      tables: [
        {
          title: `CPU over ${MEASURED_MS / 1000} s`,
          columns: ['process', '% of a core'],
          rows: uses
            .map(({ name, cpuSeconds }): [string, number] => [name, percent(cpuSeconds)])
            .toSorted(([, a], [, b]) => b - a),
        },
      ],
    };
  },
};
