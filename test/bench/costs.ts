import { readFileSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';

/** Total size of the files under a folder whose path matches, in bytes. */
export function folderBytes(dir: string, path: RegExp): number {
  return readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name))
    .filter((file) => path.test(file))
    .reduce((sum, file) => sum + (statSync(file, { throwIfNoEntry: false })?.size ?? 0), 0);
}

interface Cost {
  readonly what: string;
  readonly count: number;
  readonly seconds: number;
}

/** Sums of a role's histograms in seconds, from its /metrics. */
export async function roleCosts(dataDir: string, role: string): Promise<Cost[]> {
  const log = readFileSync(join(dataDir, 'logs', `${role}.log`), 'utf8');
  const url = [...log.matchAll(/"metrics_url":"([^"]+)"/g)].at(-1)?.[1];
  if (url === undefined) return [];
  const text = await (await fetch(`${url}/metrics`)).text();
  const sums = new Map<string, { count: number; seconds: number }>();
  for (const [, name = '', part = '', labels = '', value = ''] of text.matchAll(
    /^tds_(\w+)_seconds_(sum|count)\{(.*)\} (\S+)$/gm,
  )) {
    if (name.startsWith('nodejs_')) continue;
    const label = [...labels.matchAll(/(\w+)="([^"]*)"/g)]
      .filter(([, key]) => key !== 'role')
      .map(([, , text_]) => text_)
      .join(' ');
    const what = `${role}: ${name.replaceAll('_', ' ')}${label === '' ? '' : ` ${label}`}`;
    const entry = sums.get(what) ?? { count: 0, seconds: 0 };
    sums.set(what, { ...entry, [part === 'sum' ? 'seconds' : 'count']: Number(value) });
  }
  return [...sums]
    .map(([what, cost]) => ({ what, ...cost }))
    .filter(({ count }) => count > 0)
    .toSorted((a, b) => b.seconds - a.seconds);
}
