import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { isBuiltin } from 'node:module';

import { expect, test } from 'vitest';
import { z } from 'zod';

import { resolveOptional } from '../../../infra/embedded/optional-package.ts';

const { dependencies } = z
  .object({ dependencies: z.record(z.string(), z.string()) })
  .parse(JSON.parse(readFileSync('package.json', 'utf8')));
const FOLDERS = ['api', 'infra', 'pipeline', 'projections', 'schemas'];
/** Run as a process of its own, once its packages are known to be installed. */
const PROGRAMS = ['embedded/clickhouse/server.ts'];

/** The packages that the modules of a folder import, dynamic imports and type imports included. */
function importedPackages(folder: string): string[] {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.ts') && !PROGRAMS.includes(name),
  );
  const specifiers = files.flatMap((name) =>
    [
      ...readFileSync(join(folder, name), 'utf8').matchAll(
        /^(?:import|export \*|(?:import|export|\}).* from|\} from) '([^'.\n][^'\n]*)';$|\bimport\('([^'.\n][^'\n]*)'\)/gm,
      ),
    ].map(([, first, second]) => first ?? second ?? ''),
  );
  const names = specifiers
    .filter((specifier) => !isBuiltin(specifier))
    .map((specifier) => /^(@[^/]+\/)?[^/]+/.exec(specifier)?.[0] ?? '');
  return [...new Set(names)];
}

test.each(FOLDERS)('%s imports no optional or development dependency', (folder) => {
  const imported = importedPackages(folder);
  expect(imported.length).toBeGreaterThan(0);
  const missing = imported.filter((name) => !(name in dependencies));
  expect(missing).toEqual([]);
});

test('a missing optional package is reported with the setting that replaces the embedded part', () => {
  expect(() => resolveOptional('no-such-package', 'PostgreSQL', 'DATABASE_URL')).toThrow(
    'Embedded PostgreSQL needs the optional npm package no-such-package, which is not installed: set DATABASE_URL',
  );
});
