import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';

import { afterAll, beforeAll, expect, test } from 'vitest';

/** One planted violation of each rule of the folder table: where it stands, and what it must not import. */
const violations = [
  ['schemas/leaf.ts', '../infra/config.ts'],
  ['schemas/leaf.ts', '../pipeline/x.ts'],
  ['schemas/leaf.ts', '../projections/define.ts'],
  ['schemas/leaf.ts', 'node:fs'],
  ['infra/ground.ts', '../pipeline/x.ts'],
  ['infra/ground.ts', '../projections/define.ts'],
  ['infra/ground.ts', '../api/http/app.ts'],
  ['infra/ground.ts', './bin/tds.ts'],
  ['infra/ground.ts', 'kafkajs'],
  ['infra/kafka/client.ts', '../../projections/define.ts'],
  ['infra/kafka/client.ts', '../bin/tds.ts'],
  ['infra/bin/role.ts', 'pg'],
  ['pipeline/ingest/x.ts', '../../api/http/app.ts'],
  ['pipeline/ingest/x.ts', '../../projections/transfers/projector.ts'],
  ['pipeline/ingest/x.ts', '../../infra/bin/tds.ts'],
  ['pipeline/ingest/x.ts', 'pg'],
  ['projections/transfers/projector.ts', '../account-feed/projector.ts'],
  ['projections/transfers/projector.ts', '../../pipeline/x.ts'],
  ['projections/define.ts', '../api/http/app.ts'],
  ['projections/define.ts', '@clickhouse/client'],
  ['projections/transfers/projector.ts', '../engine/builds.ts'],
  ['projections/engine/run/clickhouse-runner.ts', '../../../api/http/app.ts'],
  ['projections/engine/run/clickhouse-runner.ts', '../../transfers/projector.ts'],
  ['projections/engine/builds.ts', 'pg'],
  ['api/tokens/x.ts', '../../pipeline/x.ts'],
  ['api/tokens/x.ts', '../../pipeline/dispatch/deliveries.ts'],
  ['api/tokens/x.ts', '../../pipeline/dispatch/send/queries.ts'],
  ['api/tokens/x.ts', '../../pipeline/ingest/queries.ts'],
  ['api/tokens/x.ts', '../../projections/engine/builds.ts'],
  ['api/tokens/x.ts', '../../projections/transfers/projector.ts'],
  ['api/tokens/x.ts', '../../infra/bin/tds.ts'],
  ['api/tokens/x.ts', 'kafkajs'],
  ['api/tokens/x.ts', 'ioredis'],
  ['console/src/screens/x.ts', '../../../schemas/felt.ts'],
  ['console/src/screens/x.ts', '../../../client/src/client.ts'],
  ['console/src/x.ts', '../../api/http/route.ts'],
  ['console/src/x.ts', 'node:fs'],
  ['test/unit/x.ts', '../../infra/bin/tds.ts'],
] as const;

const allowed = [
  ['schemas/leaf.ts', './felt.ts'],
  ['schemas/leaf.ts', 'node:crypto'],
  ['infra/ground.ts', '../schemas/errors.ts'],
  ['infra/kafka/client.ts', 'kafkajs'],
  ['infra/redis/client.ts', 'ioredis'],
  ['infra/bin/role.ts', '../../api/http/app.ts'],
  ['pipeline/ingest/x.ts', '../../projections/indexed-blocks/queries.ts'],
  ['projections/transfers/projector.ts', '../define.ts'],
  ['api/tokens/x.ts', '../../projections/transfers/queries.ts'],
  ['api/balances/x.ts', '../../projections/balances-at.ts'],
  ['pipeline/dispatch/x.ts', '../../projections/balances-at.ts'],
  ['api/tokens/x.ts', '../../projections/served.ts'],
  ['pipeline/dispatch/match/x.ts', '../../../projections/served.ts'],
  ['console/src/x.ts', 'token-data-service-client'],
  ['test/unit/x.ts', '../../infra/bin/operator/accounts.ts'],
] as const;

const root = process.cwd();
let tree: string;

beforeAll(() => {
  tree = mkdtempSync(join(tmpdir(), 'tds-lint-'));
  cpSync(resolve(root, 'infra/lint/oxlint.json'), join(tree, 'infra/lint/oxlint.json'), { recursive: true });
});
afterAll(() => {
  rmSync(tree, { recursive: true });
});

/** The rules reported for a file that holds one import. */
function reported(file: string, specifier: string): string[] {
  const target = join(tree, file);
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, `import * as it from '${specifier}';\nexport const used = it;\n`);
  let output: string;
  try {
    output = execFileSync(
      resolve(root, 'node_modules/.bin/oxlint'),
      ['-c', join(tree, 'infra/lint/oxlint.json'), '-f', 'json', target],
      { cwd: tree, encoding: 'utf8' },
    );
  } catch (error) {
    output = String(error instanceof Error && 'stdout' in error ? error.stdout : error);
  } finally {
    rmSync(target);
  }
  const { diagnostics } = JSON.parse(output) as { diagnostics: { code: string }[] };
  return diagnostics.map(({ code }) => code);
}

test.each(violations)('%s may not import %s', (file, specifier) => {
  expect(reported(file, specifier)).toContain('eslint(no-restricted-imports)');
});

test.each(allowed)('%s may import %s', (file, specifier) => {
  expect(reported(file, specifier)).not.toContain('eslint(no-restricted-imports)');
});
