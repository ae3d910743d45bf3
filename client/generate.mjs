/**
 * `npm run generate`: writes `src/generated` from the declarations of the routes, and `document.json`, which says from which
 * OpenAPI document. `--check` writes nothing and exits with 1 when that is another document than the routes' now.
 */
import { createHash } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { describeApi } from '../api/http/openapi.ts';
import { apiRoutes } from '../api/routes.ts';

const provenance = new URL('document.json', import.meta.url);
// The declarations need no store; only the handlers would.
const text = JSON.stringify(describeApi(apiRoutes({})));
const { info } = JSON.parse(text);
const document = { version: info.version, sha256: createHash('sha256').update(text).digest('hex') };

if (process.argv.includes('--check')) {
  if (JSON.parse(readFileSync(provenance, 'utf8')).sha256 === document.sha256) process.exit(0);
  console.error('The routes have changed: run `npm run generate --workspace client`.');
  process.exit(1);
}

const { createClient } = await import('@hey-api/openapi-ts');
const input = join(tmpdir(), `openapi-${process.pid}.json`);
writeFileSync(input, text);
await createClient({
  input,
  output: { path: fileURLToPath(new URL('src/generated', import.meta.url)), module: { extension: '.ts' } },
  plugins: [
    { name: '@hey-api/client-fetch', throwOnError: true },
    '@hey-api/typescript',
    {
      name: '@hey-api/sdk',
      responseStyle: 'data',
      operations: { strategy: 'single', containerName: 'Operations', methods: 'instance' },
    },
  ],
  logs: { level: 'silent' },
});
rmSync(input);
writeFileSync(provenance, `${JSON.stringify(document, null, 2)}\n`);
