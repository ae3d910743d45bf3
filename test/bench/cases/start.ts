import { z } from 'zod';

import { sleep } from '../../../infra/lifecycle.ts';
import { STRK_TOKEN } from '../../../schemas/felt.ts';
import type { RunningService } from '../../support/service.ts';
import { wanted } from '../case.ts';
import type { BenchCase } from '../case.ts';
import { isAlive, processesNaming } from '../processes.ts';

/** Maximum age of the newest transfer in a fresh answer. */
const FRESH_MS = 15_000;
const GIVEN_UP_MS = 180_000;

const page = z.object({ results: z.array(z.object({ timestamp: z.string() })) });
const progress = z.object({ totals: z.object({ transfers: z.number() }) });

export const start: BenchCase = {
  name: 'start',
  summary: 'npm start after set-up: time to the first fresh answer, time to stop, second start',
  async run(world) {
    const seconds = (since: number): number => (performance.now() - since) / 1000;

    const begun = performance.now();
    const { service, dataDir } = await world.service('start');
    const ready = seconds(begun);
    await freshAnswer(service);
    const fresh = seconds(begun);
    const before = await totals(service);

    const pids = [...Object.values(service.pids()), service.pid];
    const told = performance.now();
    await service.stop('SIGINT');
    const left = (): number => new Set([...pids.filter(isAlive), ...processesNaming(dataDir)]).size;
    while (left() > 0 && seconds(told) < 30) await sleep(20);
    const stopped = seconds(told);
    const leftOver = left();

    const again = performance.now();
    const { service: second } = await world.service('start');
    const secondReady = seconds(again);
    const after = await totals(second);
    const answered = seconds(again);
    await freshAnswer(second);
    return {
      figures: [
        { name: 'first start: says it is ready', value: ready, unit: 's' },
        {
          name: 'first start: answers with fresh transfers',
          value: fresh,
          unit: 's',
          want: wanted.firstStart,
        },
        { name: 'Ctrl-C until no process is left', value: stopped, unit: 's', want: wanted.stop },
        { name: 'second start: says it is ready', value: secondReady, unit: 's' },
        { name: 'second start: answers', value: answered, unit: 's', want: wanted.secondStart },
        {
          name: 'second start: answers with fresh transfers',
          value: seconds(again),
          unit: 's',
        },
      ],
      completeness: [
        { what: 'processes left after Ctrl-C', expected: 0, found: leftOver },
        {
          what: 'transfers that a second start does not have any more',
          expected: 0,
          found: Math.max(0, before - after),
        },
      ],
      notes: [
        'All services embedded, default settings: the simulated chain begins with 300 blocks and adds one every 2 s.',
      ],
    };
  },
};

/** Transfers in the totals of the API. */
export async function totals(service: RunningService): Promise<number> {
  const { status, json } = await service.get('/api/indexer/progress/');
  if (status !== 200) throw new Error(`the API answered ${status}`);
  return progress.parse(json).totals.transfers;
}

/** Resolves when the API shows a transfer of the last seconds. */
async function freshAnswer(service: RunningService): Promise<void> {
  const began = performance.now();
  for (;;) {
    const { status, json } = await service.get(`/api/transfers/?token=${STRK_TOKEN}&limit=1`);
    const newest = status === 200 ? page.parse(json).results[0] : undefined;
    if (newest !== undefined && Date.now() - Date.parse(newest.timestamp) < FRESH_MS) return;
    if (performance.now() - began > GIVEN_UP_MS) throw new Error('no fresh transfers');
    await sleep(50);
  }
}
