import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

import { z } from 'zod';

import type { Table } from './case.ts';

/** The used fields of V8's CPU profile. Times in microseconds. */
const profile = z.object({
  nodes: z.array(
    z.object({
      id: z.number(),
      callFrame: z.object({ functionName: z.string(), url: z.string(), lineNumber: z.number() }),
    }),
  ),
  samples: z.array(z.number()),
  timeDeltas: z.array(z.number()),
});

const SHOWN = 14;
const IDLE = new Set(['(idle)', '(program)', '(root)']);
/** Processes with less CPU time get no table. */
const LEAST_SECONDS = 1;

/** For each process, the functions with the most self time. */
export function summarizeProfiles(dir: string, names: ReadonlyMap<number, string>): Table[] {
  if (!existsSync(dir)) return [];
  return readdirSync(dir).flatMap((file) => {
    // CPU.<date>.<time>.<pid>.<thread>.<number>.cpuprofile
    const [, , , pid = '', thread] = file.split('.');
    const name = names.get(Number(pid));
    if (!file.endsWith('.cpuprofile') || name === undefined || thread !== '0') return [];
    return summarize(name, profile.parse(JSON.parse(readFileSync(join(dir, file), 'utf8'))));
  });
}

function summarize(name: string, { nodes, samples, timeDeltas }: z.infer<typeof profile>): Table[] {
  const place = new Map(
    nodes.map(({ id, callFrame: { functionName, url, lineNumber } }) => [
      id,
      `${functionName === '' ? '(anonymous)' : functionName}${url === '' ? '' : `  ${shortUrl(url)}:${lineNumber + 1}`}`,
    ]),
  );
  const own = new Map<string, number>();
  let busy = 0;
  for (const [index, id] of samples.entries()) {
    const where = place.get(id) ?? '?';
    if (IDLE.has(where)) continue;
    const seconds = (timeDeltas[index] ?? 0) / 1e6;
    busy += seconds;
    own.set(where, (own.get(where) ?? 0) + seconds);
  }
  if (busy < LEAST_SECONDS) return [];
  const top = [...own].toSorted(([, a], [, b]) => b - a).slice(0, SHOWN);
  return [
    {
      title: `CPU of ${name}: ${busy.toFixed(1)} s in JavaScript and native calls`,
      columns: ['own s', 'share %', 'function'],
      rows: top.map(([where, seconds]) => [seconds, (100 * seconds) / busy, where]),
    },
  ];
}

function shortUrl(url: string): string {
  return url.split('/').slice(-3).join('/');
}
