import { readFileSync, writeFileSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { z } from 'zod';

import type { BenchCase, Completeness } from '../case.ts';
import { mixedChain } from '../cases/backfill.ts';
import { median } from '../measure.ts';
import { blocksOf, fetchAnswers, rowsOf } from './parts.ts';
import { cpuOf, createReference } from './reference.ts';
import { measureService } from './service.ts';
import type { Ratios } from './service.ts';

const file = fileURLToPath(new URL('ratios.json', import.meta.url));
const recordedSchema = z.record(z.string(), z.number());

const TRANSFERS = 60_000;
const PER_BLOCK = 125;
/** Blocks of the parts that run in this process. */
const BLOCKS = 60;
const WARM_UP = 4;
const ROUNDS = 15;
/** Largest loss against the recorded ratio of work that runs in turn with the reference, in one process. */
const LOSS = 1.3;
/**
 * The same where many processes share the cores with the reference. On another machine the unchanged service had up to
 * 63 % more than recorded, in each of three attempts at least 32 %: switches between processes and cold caches cost them
 * more than they cost the reference.
 */
const LOSS_OF_SERVICE = 2;
/** A loss counts only if every attempt has it: other work on the machine may spoil one. */
const ATTEMPTS = 3;

/**
 * Compares CPU time with that of fixed reference work in the same run, so that the result depends neither on the speed of
 * the machine nor, within limits, on its load.
 *
 * @param isRecording writes the ratios, each the median of three attempts, instead of comparing them
 */
export const quick = (isRecording: boolean): BenchCase => ({
  name: 'quick',
  summary: `CPU time relative to reference work; ${isRecording ? 'recorded' : 'fails on a large loss against the recorded ratios'}`,
  async run(world) {
    const { chain, settings } = await mixedChain(world, TRANSFERS, PER_BLOCK);
    const reference = createReference();
    const heights = Array.from({ length: BLOCKS }, (_, index) => 100 + index);
    const answers = await fetchAnswers(chain.url, heights);
    const completeness: Completeness[] = [];
    const ofService = async (attempt: number): Promise<Ratios> => {
      const name = `quick-${attempt}`;
      const measured = await measureService(world, name, { chain, settings, reference });
      completeness.push(...measured.completeness);
      return measured.ratios;
    };

    const recorded = isRecording ? null : recordedSchema.parse(JSON.parse(readFileSync(file, 'utf8')));
    const parts = [
      ...(await attempted(() => measureInProcess(reference, answers), recorded, LOSS)),
      ...(await attempted(ofService, recorded, LOSS_OF_SERVICE)),
    ];
    if (recorded === null) record(parts);
    return {
      figures: [],
      tables: [
        {
          title: 'CPU relative to the reference work',
          columns: [
            'part',
            'recorded',
            'change %',
            ...Array.from({ length: ATTEMPTS }, (_, n) => `attempt ${n + 1}`),
          ],
          rows: parts.map(({ name, attempts }) => {
            const known = recorded?.[name] ?? median(attempts);
            const padding = Array.from({ length: ATTEMPTS - attempts.length }, () => '');
            return [name, known, 100 * (Math.min(...attempts) / known - 1), ...attempts, ...padding];
          }),
        },
      ],
      completeness: [
        {
          what: 'parts that take far more than recorded',
          expected: 0,
          found: recorded === null ? 0 : parts.filter(({ isSlow }) => isSlow).length,
        },
        ...completeness,
      ],
      notes: ['To accept the ratios of this tree: npm run bench -- --quick --record, on a quiet machine.'],
    };
  },
});

/** A part with its ratio in each attempt. It is slow if each is above the largest loss. */
interface Attempted {
  readonly name: string;
  readonly attempts: readonly number[];
  readonly isSlow: boolean;
}

/** Measures until no part is slow, at most three times; to record (`recorded` is null), always three times. */
async function attempted(
  measure: (attempt: number) => Promise<Ratios>,
  recorded: Ratios | null,
  loss: number,
): Promise<Attempted[]> {
  let parts: Attempted[] = [];
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    const ratios = await measure(attempt);
    const earlier = new Map(parts.map(({ name, attempts }) => [name, attempts]));
    parts = Object.entries(ratios).map(([name, ratio]) => {
      const attempts = [...(earlier.get(name) ?? []), ratio];
      // A part without a recorded ratio is slow, too: it has to be recorded.
      const isSlow = !(Math.min(...attempts) <= loss * (recorded?.[name] ?? Number.NaN));
      return { name, attempts, isSlow };
    });
    if (recorded !== null && !parts.some(({ isSlow }) => isSlow)) break;
  }
  return parts;
}

function record(parts: readonly Attempted[]): void {
  const ratios = parts.map(({ name, attempts }) => [name, Number(median(attempts).toPrecision(3))]);
  writeFileSync(file, `${JSON.stringify(Object.fromEntries(ratios), null, 2)}\n`);
}

async function measureInProcess(reference: () => void, answers: readonly string[]): Promise<Ratios> {
  const blocks = blocksOf(answers);
  const parts = [blocks, rowsOf(blocks.bodies())];
  const ratios = new Map<string, number[]>(parts.map(({ name }) => [name, []]));
  for (let round = -WARM_UP; round < ROUNDS; round += 1) {
    // Lets this process see connections that were closed meanwhile.
    await turn();
    const once = await cpuOf(reference);
    for (const { name, run } of parts) {
      const ratio = (await cpuOf(() => run())) / once;
      if (round >= 0) ratios.get(name)?.push(ratio);
    }
  }
  return Object.fromEntries([...ratios].map(([name, samples]) => [name, median(samples)]));
}
